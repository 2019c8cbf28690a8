"""The page of `seqloom explore`: ES modules, style and markup, and writing them into one file; knows no model."""
