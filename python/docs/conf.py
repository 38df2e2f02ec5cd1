"""Sphinx reference of the Python package; `bash scripts/python.sh docs` builds it."""

import meshloom

project = "meshloom"
author = "the meshloom authors"
copyright = author
version = release = meshloom.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
templates_path = []
html_theme = "furo"
html_title = f"meshloom {version}"
html_show_sphinx = False
html_copy_source = False

# Names in single backticks are links where they name an object.
default_role = "py:obj"
# Tables of contents list each object once.
toc_object_entries_show_parents = "hide"
autodoc_member_order = "groupwise"
autodoc_typehints = "none"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
