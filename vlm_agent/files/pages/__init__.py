"""HTML pages: templates that are filled in with texts from outside."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def page_environment(templates: Path) -> Environment:
    """Jinja with the templates of a folder. Every text is escaped, and an unknown name in a template is an error."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["words"] = words
    return environment


def words(name: str) -> str:
    """A name of ours with spaces for underscores. A text with more than such a name, such as a path, is unchanged."""
    return name.replace("_", " ") if name.isidentifier() else name
