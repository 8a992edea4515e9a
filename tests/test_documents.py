"""Links lead somewhere, and the commands that the documents show exist with their options."""

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from bflp import cli

ROOT = Path(__file__).resolve().parents[1]
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/data/README.md"]
# What the documents also show, and what is not the project's own.
FOREIGN = {
    "source",
    "git",
    "cd",
    "apt-get",
    "sbatch",
    "squeue",
    "scancel",
    "sinfo",
    "ssh",
    "tmux",
    "nohup",
    "tail",
    "ls",
}


def commands() -> list[tuple[str, str]]:
    """(document, command line) of all shell blocks and of commands within the text."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        lines += re.findall(r"`((?:snakemake|python|make|bflp) [^`]+)`", text)
        lines += re.findall(r"^    ((?:snakemake|python|bflp) .+)$", text, re.MULTILINE)
        joined = "\n".join(lines).replace("\\\n", " ")
        found += [(document.name, line.split(" #")[0].strip()) for line in joined.splitlines()]
    return sorted({(name, line) for name, line in found if line and not line.startswith("#")})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (document.parent / target).exists(), target


@cache
def options_of(*command: str) -> set[str]:
    """The options that a program's help names."""
    done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {*OPTION.findall(done.stdout), "--help"}


@pytest.mark.slow
@pytest.mark.parametrize(("document", "line"), commands(), ids=lambda value: value[:60])
def test_commands_exist(document: str, line: str) -> None:
    words = shlex.split(line)
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words.pop(0)
    options = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    if words[0] == "make":
        for target in words[1:]:
            if "=" not in target:
                subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
    elif words[0] == "snakemake":
        assert options <= options_of(sys.executable, "-m", "snakemake")
        rules = set(re.findall(r"^(?:rule|checkpoint) (\w+):", (ROOT / "Snakefile").read_text(encoding="utf-8"), re.M))
        for profile in re.findall(r"profiles/\w+", line):
            assert (ROOT / profile).is_dir()
        first = [word for word in words[1:] if not word.startswith("-")][:1]
        if len(words) > 1 and not words[1].startswith("-") and "." not in first[0] and "/" not in first[0]:
            assert first[0] in rules
    elif words[0] == "bflp":
        verb = words[1] if len(words) > 1 and not words[1].startswith("-") else None
        known = set(OPTION.findall(cli.parser_of(verb).format_help())) if verb else {"--help"}
        assert options <= known
    elif words[0] == "python":
        if words[1] == "-m":
            assert words[2].startswith("bflp.")
            assert ROOT.joinpath(*words[2].split(".")).with_suffix(".py").is_file()
        else:
            assert (ROOT / words[1]).is_file()
            assert options <= options_of(sys.executable, words[1])
    elif words[0].startswith("benchmarks/"):
        assert (ROOT / words[0]).is_file()
    else:
        assert words[0] in FOREIGN
