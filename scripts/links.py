#!/usr/bin/env python3
"""Checks the links of HTML pages below a folder: files exist, and so do the elements that fragments name.

    scripts/links.py FOLDER

Addresses on other hosts are not opened. Prints the broken links and fails if there are any.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and the names of elements of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" or (tag == "a" and name == "name"):
                self.names.add(value)


def main(folder):
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    broken, checked = [], 0
    for path, page in pages.items():
        # The page of errors has links from the root of a server, and that for printing joins all pages.
        if path.name in ("404.html", "print.html"):
            continue
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            fragment = urllib.parse.unquote(parts.fragment)
            if not target.is_file() or (fragment and target in pages and fragment not in pages[target].names):
                broken.append(f"{path.relative_to(folder.resolve())}: {link}")
    for line in broken:
        print(f"links: broken: {line}", file=sys.stderr)
    print(f"links: {len(pages)} pages, {checked} links, {len(broken)} broken")
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
