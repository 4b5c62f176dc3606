"""How everything looks: colours, sizes, the style sheet, icons."""
