"""`make kube-assets`: build the programs of the real clusters from pinned Go modules into a cache folder outside the tree."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.lab.kube.assets import MODULES, cache_folder
from infra.lab.kube.programs import PROGRAMS, Program

GO_AT_LEAST = (1, 21)
"""From here on Go fetches the version that go.mod asks for by itself (go.dev/doc/toolchain)."""

PARALLEL = 2
"""Packages compiled at once: the API server takes 2 GB so; more of them would not fit into small machines."""

_STILL_S = 30.0
_ENVIRONMENT = {"GOWORK": "off", "GOFLAGS": "-mod=readonly"}


class BuildFailed(RuntimeError):
    """A program could not be built. The message says why and what to do."""


def go_version() -> str:
    """Return the version of the Go that builds here, e.g. "go1.26.8". BuildFailed when there is none, or an old one."""
    go = shutil.which("go")
    advice = "install Go 1.26 from https://go.dev/dl/ (on Debian 13 apt-get install golang-go does: it fetches 1.26 itself)"
    if go is None:
        raise BuildFailed(f"there is no go on the PATH: {advice}")
    told = _run(["go", "env", "GOVERSION"], cwd=MODULES / "etcd").strip()
    found = re.match(r"go(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < GO_AT_LEAST:
        raise BuildFailed(f"{go} is {told}, older than {'.'.join(map(str, GO_AT_LEAST))}: {advice}")
    return told


def key_of(program: Program, version: str) -> str:
    """Return what the program is made of, as a hash: its pins, its flags and the compiler."""
    digest = hashlib.sha256()
    for part in (program.package, program.ldflags, repr(program.manifests), version):
        digest.update(part.encode() + b"\0")
    for name in ("go.mod", "go.sum"):
        digest.update((MODULES / program.module / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build_all(programs: Sequence[Program], folder: Path) -> None:
    """Build what is not there, each under a lock: of two builds at once the second waits, then has it."""
    version = go_version()
    for name in ("bin", "keys", "manifests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index, program in enumerate(programs, start=1):
        label = f"[{index:2}/{len(programs)}] {program.name}"
        key = key_of(program, version)
        with _lock(folder / "keys" / f"{program.name}.lock"):
            if _has(program, key, folder):
                print(f"{label}: have it", flush=True)
                continue
            _build(program, key, folder, label)


def _has(program: Program, key: str, folder: Path) -> bool:
    written = folder / "keys" / program.name
    return (folder / "bin" / program.name).exists() and written.exists() and written.read_text() == key


def _build(program: Program, key: str, folder: Path, label: str) -> None:
    """Build under another name and rename: a program that runs goes on, and one that is half built is never found."""
    started = time.monotonic()
    print(f"{label}: building {program.package}", flush=True)
    (folder / "keys" / program.name).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{program.name}-", dir=folder) as scratch:
        built = Path(scratch) / program.name
        command = ["go", "build", "-p", str(PARALLEL), "-buildvcs=false", "-ldflags", program.ldflags, "-o", str(built)]
        command.append(program.package)
        _run_long(command, MODULES / program.module, label, started)
        if program.manifests:
            _copy_manifests(program, Path(scratch) / "manifests", folder / "manifests" / program.name)
        built.replace(folder / "bin" / program.name)
        (Path(scratch) / "key").write_text(key)
        (Path(scratch) / "key").replace(folder / "keys" / program.name)
    print(f"{label}: built in {_minutes(time.monotonic() - started)}", flush=True)


def _copy_manifests(program: Program, scratch: Path, target: Path) -> None:
    listed = _run(["go", "list", "-m", "-f", "{{.Dir}}", program.source], cwd=MODULES / program.module).strip()
    for inside, name in program.manifests:
        source = Path(listed) / inside
        for file in sorted(source.rglob("*.yaml")) if source.is_dir() else [source]:
            if file.name.startswith("kustomization"):
                continue
            copied = scratch / name / file.relative_to(source) if source.is_dir() else scratch / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())
    if target.exists():
        shutil.rmtree(target)
    scratch.replace(target)


def _run_long(command: Sequence[str], cwd: Path, label: str, started: float) -> None:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output, env=os.environ | _ENVIRONMENT)
        try:
            while True:
                try:
                    process.wait(timeout=_STILL_S)
                    break
                except subprocess.TimeoutExpired:
                    print(f"{label}: {_minutes(time.monotonic() - started)} so far", flush=True)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            output.seek(0)
            end = output.read().decode(errors="replace")[-4000:]
            raise BuildFailed(f"{label}: {' '.join(command)} in {cwd} ended with {process.returncode}:\n{end}")


def _run(command: Sequence[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=os.environ | _ENVIRONMENT, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} in {cwd}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def main() -> int:
    """Build the programs named on the command line, or all."""
    named = sys.argv[1:]
    unknown = set(named) - {program.name for program in PROGRAMS}
    if unknown:
        print(f"no such program: {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in PROGRAMS)}", file=sys.stderr)
        return 2
    folder = cache_folder()
    print(f"programs of the real clusters, in {folder}", flush=True)
    try:
        build_all([program for program in PROGRAMS if not named or program.name in named], folder)
    except BuildFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
