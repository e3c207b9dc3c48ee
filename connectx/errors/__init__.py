"""The errors that several parts raise, in modules by what they are about; a connector's errors are in its folder.

Each error describes in one sentence what happened, has a stable `code` for programs, shows with `retriable` whether
the same call may succeed later, and names the `next_step` for the person who reads it. Programs catch
`connectx.ConnectxError` and ask for its `code`, or import a class from the module that a traceback names.
"""
