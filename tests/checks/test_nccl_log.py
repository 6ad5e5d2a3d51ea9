"""What is read out of NCCL's log: the transport of each host, the first warning with its rank, and a few lines, no more."""

from __future__ import annotations

import pytest

from checks.judges.nccl_log import KEPT_CHARACTERS, KEPT_LINES, read_log

HEADER = """# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid    101 on     node-1 device  0 [0x53] NVIDIA H100 80GB HBM3
#  Rank  8 Group  0 Pid    201 on     node-2 device  0 [0x53] NVIDIA H100 80GB HBM3
"""
EFA = """node-1:101:140 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.0
node-1:101:140 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)
node-1:101:140 [0] NCCL INFO Using network Libfabric
node-2:201:240 [0] NCCL INFO Using network AWS Libfabric
node-1:101:150 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA
"""


def test_a_run_over_efa_says_so_once_for_all_hosts() -> None:
    log = read_log(HEADER + EFA)
    assert (log.transport, dict(log.transports)) == ("efa", {"efa": ("node-1", "node-2")})
    assert log.warning is None


def test_a_host_that_fell_back_to_sockets_is_named() -> None:
    log = read_log(
        HEADER
        + EFA.replace(
            "node-2:201:240 [0] NCCL INFO Using network AWS Libfabric", "node-2:201:240 [0] NCCL INFO Using network Socket"
        )
    )
    assert log.transport in ("efa, but sockets on node-2", "sockets, but efa on node-1")
    assert log.transports["sockets"] == ("node-2",)


def test_the_plug_in_over_tcp_is_sockets_whatever_it_is_called() -> None:
    text = "n1:1:2 [0] NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm\nn1:1:2 [0] NCCL INFO Using network AWS Libfabric\n"
    assert read_log(text).transport == "sockets"


def test_what_channels_use_counts_more_than_what_was_chosen() -> None:
    text = "n1:1:2 [0] NCCL INFO Using network IB\nn1:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
    assert read_log(text).transport == "sockets"


@pytest.mark.parametrize("prefix", ["", "[1,8]<stdout>:", "8: ", "[1,8]<stderr>: "])
def test_the_first_warning_has_its_host_and_rank_under_any_launcher(prefix: str) -> None:
    warn = [
        "node-2:201:260 [0] transport/net.cc:300 NCCL WARN NET/OFI Request completed with error. RC: 12",
        "node-1:101:160 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer node-2<4000>",
    ]
    text = "".join(prefix + line + "\n" for line in (HEADER + EFA).splitlines() + warn)
    found = read_log(text).warning
    assert found is not None
    assert (found.host, found.rank) == ("node-2", 8)
    assert str(found).startswith("first warning of NCCL, by rank 8 on node-2: NET/OFI Request completed with error")


def test_a_warning_before_the_list_of_ranks_has_its_host_alone() -> None:
    found = read_log("node-9:77:78 [3] init.cc:10 NCCL WARN no fabric\n").warning
    assert found is not None
    assert (found.host, found.rank, str(found)) == ("node-9", None, "first warning of NCCL, by node-9: no fabric")


def test_of_a_long_log_a_few_lines_are_kept_warnings_first() -> None:
    many = "".join(f"n{n}:1:2 [0] NCCL INFO Using network Libfabric {'x' * 900}\n" for n in range(500))
    warn = "".join(f"n{n}:1:2 [0] a.cc:1 NCCL WARN bad {n}\n" for n in range(500))
    kept = read_log(many + warn).kept
    assert len(kept) == KEPT_LINES
    assert all(len(line) <= KEPT_CHARACTERS for line in kept)
    assert sum("WARN" in line for line in kept) == KEPT_LINES // 2


@pytest.mark.parametrize("text", ["", "# Out of bounds values : 0 OK\n", "\0\0", "NCCL WARN", "a:1:2 [0] NCCL"])
def test_a_silent_or_broken_log_tells_nothing(text: str) -> None:
    log = read_log(text)
    assert (log.transport, log.warning, log.kept) == ("", None, ())
