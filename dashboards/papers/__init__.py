"""Every figure and table of the five papers, drawn from a campaign's own results.

An `Item` is one of them; `ITEMS` has all 35 figures and 38 tables. Nothing here has a number of a paper in it: printed
values come from `store.published`, all others from the campaign.
"""
