"""Operations on weights: adapters, precision, ZeRO-3, where they come from, merging."""
