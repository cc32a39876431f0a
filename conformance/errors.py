"""Errors that tell a person what to do: one clear message, exit status 2, no traceback."""


class UserError(Exception):
    """Something that the user gave cannot be used; the message says what happened, where, and what to do.

    `jms-conformance` prints the message alone and ends with status 2.
    """
