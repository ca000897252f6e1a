"""Rules that give jobs experiment, team, project and purpose from what their scheduler says of them. Pure: rows in, columns out."""
