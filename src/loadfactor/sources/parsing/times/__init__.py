"""Written times → instants: single stamps, whole columns, and local times in their zone. All sources read times here."""
