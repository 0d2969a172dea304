"""The cost of hits: price rules, the ledger, credit, and what is withheld until it is paid."""
