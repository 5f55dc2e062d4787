"""How well drafts are answered: citations of public drafts, masked and asked for (benchmark=drafts)."""
