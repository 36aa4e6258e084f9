"""`bloomery cluster up`: Redis, nodes and HAProxy on this machine, for a try-out."""
