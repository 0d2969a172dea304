"""What hits cost: price rules, the ledger, credit, and what is withheld until it is paid."""
