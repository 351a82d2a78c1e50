"""Write the table of tests/peers/README.md from the rows: `python -m tests.peers.tool_table`."""

from __future__ import annotations

from pathlib import Path

from tests.peers.tool_rows import CHAPTERS, Row

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- rows: python -m tests.peers.tool_table -->\n", "<!-- end of rows -->\n"


def table() -> str:
    """Return the table: one line per command, in the order in which they run."""
    lines = ["| command | Kafka 4.1 says | Sluice |", "|---|---|---|"]
    for chapter, rows in CHAPTERS.items():
        lines.append(f"| **{chapter}** | | |")
        lines += [f"| `kafka-{_cell(row.line)}` | {_said(row.says)} | {_ours(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _ours(row: Row) -> str:
    if row.waits:
        return f"**not yet**: waits for {row.waits}"
    if row.how == "same":
        return "the same"
    if row.how == "words":
        return row.because
    return f"{_said(row.sluice) or 'nothing'}: {row.because}"


def _said(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Put the table between its marks."""
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    README.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
