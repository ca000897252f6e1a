"""Runs the steps of a Dockerfile in roots of its own (chroot), then starts each image and asks its health check.

`check_dockerfile.py DOCKERFILE CONTEXT WORK`: WORK/base is the root that every image from outside stands for. Needs root. Each step
runs with process numbers and mounts of its own, the network of this machine and the settings of its pip. Exits with 1 if one fails.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn

INSIDE = 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot --userspec="$2" "$1" /bin/sh -c "$3"'
"""Run in namespaces of its own, so that nothing stays mounted. Arguments: root, user, what its shell does."""
SETTINGS = re.compile(r"(PIP_|SSL_|REQUESTS_|https?_proxy|no_proxy)", re.IGNORECASE)
OF_THE_MACHINE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
WITHOUT_STEPS = {"LABEL", "VOLUME", "EXPOSE"}
EXAMPLE = "examples/october"
HEALTHY_WITHIN_S = 120
STOPS_WITHIN_S = 60
LAST_LINES = 30
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Image:
    """A stage: its root and what the Dockerfile says of it."""

    name: str
    root: Path
    folder: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": USUAL_PATH, "HOME": "/tmp"})
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """What its steps and processes said."""
        return self.root.with_suffix(".log")

    def start(self, shell: str) -> subprocess.Popen[bytes]:
        """Start a line of shell in it."""
        settings = {name: value for name, value in os.environ.items() if SETTINGS.match(name)}
        variables = [f"{name}={value}" for name, value in {**settings, **self.environment}.items()]
        script = (
            f"cd {shlex.quote(self.folder)} && {shlex.join(['exec', 'env', '-i', *variables, '/bin/sh', '-c', shell])}"
        )
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command = [*namespaces, "sh", "-c", INSIDE, "sh", str(self.root), self.user, script]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, shell: str) -> None:
        """Run it to its end; ends this program where it fails."""
        began_s = time.monotonic()
        if code := self.start(shell).wait():
            self.give_up(f"exit code {code} of: {shell}")
        print(f"{self.name}: {time.monotonic() - began_s:.0f} s: {' '.join(shell.split())[:100]}", flush=True)

    def give_up(self, why: str) -> NoReturn:
        """End this program with the last lines that were said."""
        sys.exit("\n".join([*self.log.read_text(errors="replace").splitlines()[-LAST_LINES:], f"{self.name}: {why}"]))


def read_steps(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Instruction and the rest of each, continued lines joined, comments left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def build_images(dockerfile: Path, context: Path, work: Path) -> list[Image]:
    """The stages, each in a root of its own after all of its steps."""
    images: list[Image] = []
    chosen: dict[str, str] = {}
    for step, rest in read_steps(dockerfile):
        if step == "ARG":
            name, _, value = rest.partition("=")
            chosen[name] = value
        elif step == "FROM":
            words = re.sub(r"\$\{(\w+)\}", lambda found: chosen[found[1]], rest).split()
            name = words[2] if len(words) > 2 else f"stage{len(images)}"
            images.append(Image(name, work / name))
            before = next((image.root for image in images if image.name == words[0]), work / "base")
            subprocess.run(["cp", "-a", "--reflink=auto", str(before), str(images[-1].root)], check=True)
            for path in OF_THE_MACHINE:
                if Path(path).is_file():
                    (images[-1].root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, images[-1].root / path[1:])
        elif step not in WITHOUT_STEPS:
            take_step(images, step, rest, context)
    return images


def take_step(images: Sequence[Image], step: str, rest: str, context: Path) -> None:
    """One step of the last stage."""
    image = images[-1]
    if step == "RUN":
        image.run(rest)
    elif step == "COPY":
        copy_files(images, shlex.split(rest), context)
    elif step == "WORKDIR":
        image.folder = rest
        (image.root / rest[1:]).mkdir(parents=True, exist_ok=True)
    elif step == "ENV":
        for pair in shlex.split(rest):
            name, _, value = pair.partition("=")
            image.environment[name] = value.replace("$PATH", image.environment["PATH"])
    elif step == "USER":
        image.user = rest
    elif step == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif step == "CMD":
        image.command = json.loads(rest)
    elif step == "HEALTHCHECK":
        image.health = json.loads(rest.partition("CMD ")[2])
    else:
        sys.exit(f"{image.name}: {step} is not known here; teach {__file__} what it does")


def is_ignored(context: Path, path: str) -> bool:
    """Whether .dockerignore leaves it out: the last line counts that fits it or a folder above it."""
    ignored = False
    above = [path, *(str(folder) for folder in Path(path).parents if folder.name)]
    for line in (context / ".dockerignore").read_text().split():
        if any(fnmatch(one, line.removeprefix("!")) for one in above):
            ignored = not line.startswith("!")
    return ignored


def copy_files(images: Sequence[Image], words: list[str], context: Path) -> None:
    """COPY: folders give their content, files go into a folder that is named with a slash at its end."""
    image, of = images[-1], context
    if words[0].startswith("--from="):
        of = next(one.root for one in images if one.name == words[0].removeprefix("--from="))
        words = words[1:]
    target = image.root / os.path.join(image.folder, words[-1])[1:]

    def leave_out(folder: str, names: list[str]) -> set[str]:
        inside = os.path.relpath(folder, context)
        return {name for name in names if of is context and is_ignored(context, os.path.normpath(f"{inside}/{name}"))}

    for source in (of / word.lstrip("/") for word in words[:-1]):
        if leave_out(str(source.parent), [source.name]):
            image.give_up(f"COPY {source}: left out by .dockerignore")
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=leave_out)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target if words[-1].endswith("/") else target.parent / target.name)


def check_image(image: Image) -> None:
    """What the image starts ends well, or becomes healthy and stops when it is told to."""
    process = image.start(shlex.join(["exec", *image.entrypoint, *image.command]))
    if not image.health:
        if code := process.wait():
            image.give_up(f"exit code {code} of {image.entrypoint} {image.command}")
        return
    ends_s = time.monotonic() + HEALTHY_WITHIN_S
    while image.start(shlex.join(image.health)).wait():
        if process.poll() is not None or time.monotonic() > ends_s:
            image.give_up(f"{image.command} is not healthy; it exited with {process.poll()}")
        time.sleep(1)
    (inside,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(inside), signal.SIGTERM)  # process 1 in there, as in a container
    if code := process.wait(STOPS_WITHIN_S):
        image.give_up(f"{image.command} stopped with exit code {code}")
    print(f"{image.name}: {shlex.join([*image.entrypoint, *image.command])} is healthy, and stops", flush=True)


def main() -> None:
    """Build, then check the images that start something; in the last one books are imported and reported, too."""
    dockerfile, context, work = (Path(word).resolve() for word in sys.argv[1:4])
    images = build_images(dockerfile, context, work)
    shutil.copytree(context / EXAMPLE, images[-1].root / "tmp" / "example")
    images[-1].run("loadfactor --version && loadfactor import tables /tmp/example --store /tmp/books")
    images[-1].run("loadfactor report --store /tmp/books")
    for image in images:
        if image.entrypoint:
            size = subprocess.run(["du", "-sm", str(image.root / "opt")], capture_output=True, text=True, check=True)
            print(f"{image.name}: {size.stdout.split()[0]} MB beside Debian and Python", flush=True)
            check_image(image)


if __name__ == "__main__":
    main()
