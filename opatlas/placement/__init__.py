"""Where an operator runs next when several engines could: by expected waiting time. PURE."""
