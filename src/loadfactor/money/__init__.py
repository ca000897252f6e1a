"""Money of a bill: who pays which part, what is left of a budget, what a commitment saved. Pure; amounts are exact decimals."""
