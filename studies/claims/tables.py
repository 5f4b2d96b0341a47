"""Tables of claims: a row for each claim of claims.yaml, in the section of its paper."""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from studies.ablation.records import committed
from studies.claims.compared import HOW, NOT_MEASURED, Found, Setting, points
from vlm_agent.errors import UserError
from vlm_agent.evaluation.report.published import published_tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"
CLAIMS = Path(__file__).with_name("claims.yaml")
HEAD = "| claim (paper) | model/language, seeds×demonstrations: figure | verdict |\n|---|---|---|\n"


def with_tables(page: str) -> str:
    """The page with the tables of all papers. Raises `UserError` for a section without one."""
    content = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
    settings = {
        name: Setting(committed(ROOT / about.pop("records")), **about) for name, about in content["settings"].items()
    }
    for paper, claims in content["papers"].items():
        table = HEAD + "".join(row_of(claim, content, settings) for claim in claims)
        pattern = rf"(^## {re.escape(paper)}\n(?:(?!## ).*\n)*?)\| claim\b.*\| verdict \|\n(?:\|.*\n)*"
        page, count = re.subn(pattern, lambda match, table=table: match[1] + table, page, flags=re.MULTILINE)
        if count != 1:
            raise UserError(f"docs/papers.md: the section {paper} lacks a table with '| claim | verdict |'; add it")
    return page


def row_of(claim: Mapping, content: Mapping, settings: Mapping[str, Setting]) -> str:
    printed, minus = (printed_number(claim.get(key), content["published"]) for key in ("printed", "minus"))
    printed = printed if minus is None else printed - minus
    figures = content["figures"]
    if "figure" in claim and "path" not in claim:
        claim = claim | {"path": figures[claim["figure"]]}
    if "less" in claim:
        claim = claim | {"less": figures[claim["less"]]}
    setting = settings.get(claim.get("setting", ""), Setting({}, ""))
    found = HOW[claim["how"]](setting, claim, printed)
    figure = claim.get("figure") if found.verdict != NOT_MEASURED else None
    here = " ".join(part for part in (figure, found.here) if part)
    paper = "" if printed is None else f"{printed:.0f} %" if claim["how"] == "level" else points(printed)
    text = claim["claim"].format(paper=paper)
    return f"| {text} | {models(setting, found)}{here} | {found.verdict} |\n"


def models(setting: Setting, found: Found) -> str:
    """Model and language, and the number of seeds and of demonstrations."""
    about = setting.weights or (f"{found.seeds}×{setting.demonstrations}" if found.seeds else "")
    return "" if not setting.name else ", ".join(part for part in (setting.name, about) if part) + ": "


def printed_number(printed: object, tables: Mapping[str, str]) -> float | None:
    """The paper's number: one that claims.yaml has, or [table, column, row] of published.yaml, or the difference of two
    such rows."""
    if not isinstance(printed, list):
        return printed
    alias, column, *rows = printed
    table = next(one for one in published_tables() if one.title == tables[alias])
    index = table.columns.index(column)
    values = [next(row.values[index] for row in table.rows if row.system == name) for name in rows]
    scale = 100 if table.unit == "shares from 0 to 1" else 1
    return scale * (values[0] - sum(values[1:]))
