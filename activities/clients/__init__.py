"""The real clients behind the activities' protocols, and FakeFleet, which stands for all of them in tests."""
