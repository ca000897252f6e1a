"""The pages of the server: `PAGES` declares them, each a document in the frame that all share. Knows nothing of HTTP"""
