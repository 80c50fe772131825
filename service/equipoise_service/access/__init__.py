"""Who may do what: scopes, tokens, and what may be asked of an engine. No HTTP and no database in here."""
