"""Write page/src/protocol.ts from the structures of messages, saved_format and asks in jumok.web, with their comments.

``python tools/page_protocol.py`` writes it (``make page`` does), and ``--check`` compares instead (``make check``).
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from pathlib import Path

from jumok.lens import Edit

ROOT = Path(__file__).parents[1]
WEB = ROOT / "src" / "jumok" / "web"
PROTOCOL = ROOT / "page" / "src" / "protocol.ts"
HEADER = """/** The messages of the page, generated from src/jumok/web (messages, saved_format, asks) by `make page`.
 *
 * The page asks: one JSON object with the fields `ask`, `id` and `language`, and those of `Asks`. Whatever carries the
 * messages, an answer is a JSON head plus binary buffers, whose numbers are little-endian:
 *
 *     { "answer": id, "body": ..., "buffers": [byte lengths] }   and the buffers; or one of
 *     Failure, Progress, { "state": State }
 *
 * Over a WebSocket a message is binary: the length of the head (4 bytes, little-endian), the head, then the buffers. */
"""
BASIC_TYPES = {"int": "number", "float": "number", "str": "string", "bool": "boolean", "Any": "unknown"}
# the types of edits, as JSON has them
EDIT_TYPES = {"Indices": "number | number[] | null", "Layer": "number | string | null"}
EDIT_TYPES |= {"Capture": "string", "Mask": "string"}
ASK_BASE = "Ask"


def convert_type(annotation: ast.expr, names: dict[str, str]) -> str:
    """Return an annotation in TypeScript; ``names`` has the names that TypeScript writes in another way."""
    match annotation:
        case ast.Constant(value=None):
            return "null"
        case ast.Constant(value=str() as text):
            return f'"{text}"'
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return names.get(name, name)
        case ast.BinOp(left=left, right=right):
            parts = f"{convert_type(left, names)} | {convert_type(right, names)}".split(" | ")
            return " | ".join(dict.fromkeys(parts))
        case ast.Subscript(value=ast.Name(id=name), slice=content):
            parts = content.elts if isinstance(content, ast.Tuple) else [content]
            if name == "Annotated":
                return convert_type(parts[0], names)
            types = [convert_type(part, names) for part in parts]
            match name:
                case "Literal":
                    return " | ".join(types)
                case "list":
                    is_union = "|" in types[0] and not types[0].endswith(")[]")
                    return f"({types[0]})[]" if is_union else f"{types[0]}[]"
                case "tuple":
                    return f"[{', '.join(types)}]"
                case "dict":
                    return f"Record<{', '.join(types)}>"
    raise SystemExit(f"{ast.unparse(annotation)} has no form in TypeScript; add one to tools/page_protocol.py")


class Module:
    """The source of a module: its type aliases and structures, with the comments behind them."""

    def __init__(self, path: Path, names: dict[str, str]) -> None:
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.body = ast.parse("\n".join(self.lines)).body
        self.structures = [node for node in self.body if isinstance(node, ast.ClassDef) and node.bases]
        self.names = names

    def read_comment(self, node: ast.stmt) -> str:
        """Return the comment behind a statement, as one of TypeScript."""
        comment = self.lines[(node.end_lineno or 0) - 1][node.end_col_offset or 0 :].partition("#")[2].strip()
        return f" // {comment}" if comment else ""

    def write_aliases(self) -> list[str]:
        """Return the names of choices; limited numbers become plain ones."""
        aliases = []
        for node in self.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id="Annotated"))):
                    self.names[name] = convert_type(node.value, self.names)
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Subscript(value=ast.Name(id="Literal")) | ast.BinOp(op=ast.BitOr()),
                ):
                    aliases.append(
                        f"export type {name} = {convert_type(node.value, self.names)};{self.read_comment(node)}"
                    )
        return aliases

    def write_interface(self, node: ast.ClassDef) -> str:
        """Return a structure as an interface. What the page may leave out is optional."""
        bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id not in ("Struct", ASK_BASE)]
        is_partial = node.name.endswith(ASK_BASE) or any(word.arg == "omit_defaults" for word in node.keywords)
        lines = [write_documentation(ast.get_docstring(node) or "")]
        lines.append(f"export interface {node.name}{f' extends {bases[0]}' if bases else ''} {{")
        tags = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        if "tag_field" in tags:
            lines.append(f'  {tags["tag_field"]}: "{tags["tag"]}";')
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                mark = "?" if is_partial and field.value is not None else ""
                text = convert_type(field.annotation, self.names)
                lines.append(f"  {field.target.id}{mark}: {text};{self.read_comment(field)}")
        return "\n".join([*lines, "}"])

    def write_table(self) -> str:
        """Return the names of all asks, with their fields and the body of their answers."""
        bases = {base.id for node in self.structures for base in node.bases if isinstance(base, ast.Name)}
        rows = []
        for node in self.structures:
            if node.name in bases:
                continue
            body = "Nothing"
            for line in node.body:
                match line:
                    case ast.Assign(targets=[ast.Name(id="body")]):
                        body = convert_type(line.value, self.names)
            name = node.name.removesuffix(ASK_BASE).lower()
            rows.append(f"  {name}: {{ fields: {node.name}; body: {body} }};")
        return "\n".join(
            [
                "/** The fields of each ask besides `ask`, `id` and `language`, and the body of its answer. */",
                "export interface Asks {",
                *rows,
                "}",
            ]
        )


def write_documentation(docstring: str) -> str:
    """Return a docstring as a comment of TypeScript."""
    return f"/** {docstring.replace('``', '`')} */".replace("\n", "\n * ")


def write_edit() -> str:
    """Return the edits of the lens as one interface; each kind has some of the fields."""
    types: dict[str, str] = {}
    for kind in Edit.kinds.values():
        for field in dataclasses.fields(kind):
            annotation = ast.parse(str(field.type), mode="eval").body
            types[field.name] = convert_type(annotation, {**BASIC_TYPES, **EDIT_TYPES})
    kinds = " | ".join(f'"{name}"' for name in Edit.kinds)
    layer = types.pop("layer")
    fields = [f"  {name}?: {text};" for name, text in types.items()]
    lines = ["/** An edit, as `Edit.to_json` of jumok.lens writes it; each kind has some of the fields. */"]
    return "\n".join([*lines, "export interface Edit {", f"  edit: {kinds};", f"  layer: {layer};", *fields, "}"])


def write_protocol() -> str:
    """Return the content of protocol.ts."""
    names = dict(BASIC_TYPES)
    modules = [Module(WEB / f"{name}.py", names) for name in ("messages", "saved_format", "asks")]
    aliases = [alias for module in modules for alias in module.write_aliases()]
    parts = [HEADER, "\n".join(aliases) + "\n", write_edit() + "\n"]
    for module in modules:
        parts += [f"{module.write_interface(node)}\n" for node in module.structures if node.name != ASK_BASE]
    return "\n".join([*parts, modules[-1].write_table() + "\n"])


def main(arguments: list[str]) -> None:
    """Write the file, or compare it."""
    content = write_protocol()
    if "--check" not in arguments:
        PROTOCOL.write_text(content, encoding="utf-8")
    elif PROTOCOL.read_text(encoding="utf-8") != content:
        raise SystemExit("page/src/protocol.ts differs from the structures of jumok.web; run: make page")


if __name__ == "__main__":
    main(sys.argv[1:])
