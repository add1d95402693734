"""Words by which sites name columns, and words of values; case, separators and plurals do not matter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_WORDS = """
session: session sess search srch request req impression showing serp srp pageview slate feed ranking resultset page
    visit sid view list shown response
query: query qid keyword term phrase q search searchstring searchtext topic searchterm searchquery
document: document doc item product prod sku asin article listing object result url hotel property prop job ad offer
    movie film video track song book recipe restaurant vacancy posting story post content entity gtin ean isbn pid
    course podcast episode app game venue place flat house apartment car vehicle part dish creative answer question
    paper pin photo image show deal accommodation docid itemid productid
position: position pos rank ordinal place slot index idx placement rk
click: click clicked clk hit tap tapped opened open selected chosen engaged clickthrough clickout
time: time timestamp ts at date datetime when epoch created occurred logged moment utc
user: user visitor customer buyer client account person shopper cookie reader viewer guest uid member subscriber patron
    traveler traveller anonymous listener passenger applicant seeker candidate profile consumer learner player searcher
event: event action type interaction activity
page: page
score: score relevance ranking rankscore model prediction predicted
display_probability: propensity pscore
seen: seen visible viewable visibility viewport inview exposed viewed attention
sponsored: sponsored promoted promotion promo ad ads advertised advertisement pinned boosted paid featured sponsor pin
    boost editorial
outcome: cart basket purchase purchased order ordered bought buy booking booked book apply applied application share
    shared like liked save saved subscribe subscribed favorite favourite favorited wishlist wishlisted checkout contact
    contacted reserve reserved reservation signup conversion converted revenue sale sold install installed download
    downloaded reply replied hire hired donate donated enrolled enroll lead inquiry followed bookmarked bookmark watched
    completed started gmv added rsvp call called transaction
dwell: dwell duration reading read stay watch
experiment: experiment variant bucket arm treatment test intervention random randomized randomised shuffle shuffled
    exploration explore swap swapped ab cell
context: age gender loyalty tier hour weekday dow premium segment adults children rooms nights member membership
    returning cohort saturday weekend party user customer visitor buyer registered plus prime vip newcomer month season
layout: layout template viewmode displaymode grid screen viewport
search: city destination location filter region area zip neighborhood neighbourhood cuisine category department checkin
    origin country town district section topic surface placement module feed genre channel theme
category: category cat type kind class brand group department section genre color colour code region style family
    material level status make model topic cuisine state country city channel bucket zone
value: price tag genre filter amount cost rating
counter: step seq sequence counter number nr no count serial page pageview request
filler: id ids uuid guid key hash code no nr num number string str text name value list raw token is was has flag bool
    the of on in to for shown displayed returned
id: id ids uuid guid key hash token sku asin isbn gtin ean
opened: click clicked clickout clickthrough clk tap tapped open opened select selected
shown: impression show shown display displayed serve served render rendered expose exposed exposure page results
    result ranking list slate serp view viewed
device: mobile phone smartphone iphone android ios desktop tablet ipad web app pc laptop computer tv watch mobileweb
    mweb native handheld console windows mac macos linux touch
purchase: purchase purchased order ordered bought buy booking booked book apply applied application sale sold
    conversion converted hire hired reservation reserved checkout subscribe subscribed signup enrolled donate
    transaction
"""
WORDS = {
    role: frozenset(listed.split())
    for role, _, listed in (entry.partition(":") for entry in re.split(r"\n(?=\w)", _WORDS.strip()))
}
SHUFFLES = ("shuffl", "random", "explor", "permut", "swap", "scrambl", "mixed order")


def words(name: str) -> list[str]:
    """Lower-case words of a name, without plurals: `listingIds` → listing, id."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    found = re.split(r"[^A-Za-z0-9]+", split)
    return [_singular(word.lower()) for word in found if word]


def match(role: str, name: str) -> int:
    """How well a name fits a role: 3 one word of it alone, 2 with words like id, 1 among other words, 0 not at all.

    Only the last part of a dotted name counts, unless it says nothing, as in `article.id`.
    """
    nouns = WORDS[role]
    parts = name.split(".")
    last = words(parts[-1])
    core = [word for word in last if word not in WORDS["filler"]] or last
    if not [word for word in last if word not in WORDS["filler"]] and len(parts) > 1:
        core = [word for word in words(parts[-2]) if word not in WORDS["filler"]]
    joined = "".join(core)
    if joined in nouns or (core and set(core) <= nouns):
        return 3 if len(last) == 1 else 2
    return 1 if nouns & set(core) else 0


def best(role: str, names: Iterable[str], least: int = 1) -> list[str]:
    """Names that fit a role, the best first; equally good ones in their order."""
    scored = [(match(role, name), name) for name in names]
    return [name for score, name in sorted(scored, key=lambda pair: -pair[0]) if score >= least]


def is_id(name: str) -> bool:
    """Whether a name says that the values are ids."""
    return bool(WORDS["id"] & set(words(name.rpartition(".")[2])))


def says(kind: str, text: str) -> bool:
    """Whether a name or value contains a word of this kind."""
    return bool(WORDS[kind] & set(words(text)))


def any_part(parts: Sequence[str], text: str) -> bool:
    return any(part in text.lower() for part in parts)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word
