"""Make the links of a repository work on the site, too.

Pages link to examples, configurations and modules as a forge shows them, such as
``../examples/service.py``. The site gets a copy of each file that a page links to, and the
project's own pages (CHANGELOG and so on), which stand in the root, get a place in the navigation.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PROJECT_PAGES = {
    f"{name}.md": f"project/{name}.md"
    for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "RELEASING", "SECURITY")
}
_COPIES = "repository"

# MkDocs counts what its own loggers warn of.
_log = logging.getLogger("mkdocs.plugins.repository_links")
# A fenced block, which stays as it is, or a link's text and target.
_LINK = re.compile(
    r"(?P<fence>^(?P<marks>```+).*?^(?P=marks)$)"
    r"|\[(?P<text>[^\]\n]*(?:\n[^\]\n]+)?)\]\((?P<target>[^)\s]+)\)",
    re.DOTALL | re.MULTILINE,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Give the project's own pages a place among the documentation's."""
    for name, uri in PROJECT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead a page's links to repository files to their copies on the site."""
    source_of = {uri: name for name, uri in PROJECT_PAGES.items()}
    source = source_of.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here = posixpath.dirname(page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        if match["fence"] is not None or re.match(r"[a-z]+:|#", match["target"]):
            return match[0]
        path, hash_sign, anchor = match["target"].partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted.startswith("docs/") and source.startswith("docs/"):
            return match[0]  # MkDocs knows these
        if (ROOT / wanted).is_dir():
            return match["text"]  # a folder has no page of its own
        uri = _uri_of(wanted, config, files)
        if uri is None:
            _log.warning("%s links to %s, which is no file", source, wanted)
            return match[0]
        return f"[{match['text']}]({posixpath.relpath(uri, here or '.')}{hash_sign}{anchor})"

    return _LINK.sub(lead, markdown)


def _uri_of(wanted: str, config: MkDocsConfig, files: Files) -> str | None:
    """Return where a file of the repository is on the site; copy it there if it is not yet."""
    if wanted == "README.md":
        return "index.md"
    if wanted in PROJECT_PAGES:
        return PROJECT_PAGES[wanted]
    if wanted.startswith("docs/"):
        return wanted.removeprefix("docs/")
    if not (ROOT / wanted).is_file():
        return None
    uri = f"{_COPIES}/{wanted}"
    if files.get_file_from_path(uri) is None:
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / wanted)))
    return uri
