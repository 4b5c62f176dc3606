"""The pool as a person sees it: the picture, the table, the plan and the history."""
