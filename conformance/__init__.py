"""The catalogue of requirements, the tests that show them, certification and reports."""
