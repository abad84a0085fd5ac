"""The pure-Python engine of the compiled core.

It is the readable specification of the normal form and the match rule, the fallback where
no C compiler exists, and the oracle of the property tests, which demand that both engines
agree on arbitrary bytes.
"""
