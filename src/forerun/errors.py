"""The one error that a user of the package can cause."""


class ForerunError(ValueError):
    """A caller's mistake or unusable input.

    The message is one line that names what was wrong and what to do about it. The command line prints it and exits
    with status 2; everything else that is raised is a bug of this package.
    """
