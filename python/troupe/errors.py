"""The package's errors; all of them are troupe.Error."""


class Error(Exception):
    """Any error of this package."""


class StaleLease(Error):
    """A newer lease has the directory: this attempt may no longer write there."""


class BadReport(Error):
    """A report that cannot be true."""


class Missing(Error):
    """Something that the call needs is not there: a variable, a package."""
