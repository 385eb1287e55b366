"""The rooms' order, held by reading the imports (each room imports only from rooms above it)."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "opensearch_vl"
SPINE = [
    "types",
    "errors",
    "redaction",
    "seeds",
    "text",
    "registry",
    "config",
    "decoding",
    "images",
    "runs",
    "protocols",
]
ROOMS = [
    "prompts", "wiki", "backends", "tools", "questions", "agent", "scoring", "sft", "rl", "evaluation", "viewer", "demo", "cli",
]  # fmt: skip
ORDER = {name: place for place, name in enumerate(SPINE + ROOMS)}
HEAVY = {"torch", "transformers", "trl", "verl", "ray", "gradio", "datasets", "peft", "accelerate"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports_of(file: Path) -> list[tuple[str, bool]]:
    """(module, at_top_level) of every import, TYPE_CHECKING blocks left out."""
    found = []

    def visit(node: ast.AST, top: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}: relative import"
                found.append((child.module or "", top))
                found.extend((f"{child.module}.{alias.name}", top) for alias in child.names)
            visit(child, top and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(file.read_text(encoding="utf-8")), True)
    return found


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_module_imports_only_from_rooms_above_it(file: Path) -> None:
    room = room_of(file)
    if room == "__init__":
        return
    for module, _ in imports_of(file):
        if not module.startswith("opensearch_vl."):
            continue
        other = module.split(".")[1]
        if other not in ORDER:
            continue  # a name of the package itself, such as __version__
        assert ORDER[other] <= ORDER[room], f"{room} imports {module}, a room below it"
        if other == "backends" and room != "backends":
            assert room in {"cli", "demo"}, f"{room} imports a backend ({module}); take a protocol instead"
        if room == "viewer":
            assert other in {"types", "images", "viewer"}, f"viewer imports {module}"


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_heavy_libraries_load_lazily(file: Path) -> None:
    heavy = {module.split(".")[0] for module, top in imports_of(file) if top} & HEAVY
    assert not heavy, f"{heavy} imported at the top level"


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_modules_stay_under_500_lines(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 500


def test_types_import_nothing_of_ours() -> None:
    assert not [m for m, _ in imports_of(PACKAGE / "types.py") if m.startswith("opensearch_vl")]
