"""All that starts as a process: settings, wiring, worker, watcher, intake, command line."""
