"""Who is told of alerts: transitions kept until every receiver has them, silences, messages, and what sends them."""
