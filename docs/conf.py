"""The site: `make site` builds it from the same Markdown that is read on GitHub. Nothing on it comes from elsewhere."""

from itertools import chain
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

project = "Seqloom"
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "Seqloom"
html_math_renderer = "mathml"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
exclude_patterns = ["_static"]

SECTIONS = {
    "Guides": """data tokenizers order training distributed using serving evaluating compare importing explore lens
                 exporting word-vectors extending broken-inputs""",
    "The course": "course/README course/[0-9]* course/claims",
    "The lab": "lab lab/README lab/*",
    "What was measured": "results growth context in-context reliability",
    "Reference": "api architecture",
}
"""What the side bar lists: GitHub has no such list, so it stands here and not in a page."""


def list_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Give the first page the lists of all others; a guide that is not named comes after those that are."""
    if name != app.config.root_doc:
        return
    lists = {title: pages.split() for title, pages in SECTIONS.items()}
    named = {name, *chain.from_iterable(lists.values())}
    lists["Guides"] += sorted(page for page in app.env.found_docs if "/" not in page and page not in named)
    for title, pages in lists.items():
        listed = "\n".join(pages)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {title}\n{listed}\n```\n"


def enter_math(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Write an equation as MathML, which every browser draws by itself."""
    is_block = isinstance(node, nodes.math_block)
    markup = tex2mathml(node.astext(), as_block=is_block)
    self.body.append(f'<div class="equation">{markup}</div>' if is_block else markup)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", list_pages)
    app.add_html_math_renderer("mathml", (enter_math, None), (enter_math, None))
