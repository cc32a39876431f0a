"""The conformance tests, a module a chapter of the catalogue: what is asked of a broker and its client."""
