"""Three raw tables by a reviewer who had not seen the code that guesses roles, nor its tests.

`roles` as in raw_tables.py; `OPTIONAL` has columns that need no role, with the roles that do no harm.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from raw_tables import Raw

START = 1_759_300_000  # 2025-10-01, seconds since 1970


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def zipf_weights(n: int, power: float = 0.9) -> np.ndarray:
    weights = 1 / np.arange(1, n + 1) ** power
    return weights / weights.sum()


def base36(number: int) -> str:
    digits, text = "0123456789abcdefghijklmnopqrstuvwxyz", ""
    while number:
        number, digit = divmod(int(number), 36)
        text = digits[digit] + text
    return text or "0"


GROCERIES = (
    *("milk", "oat milk", "bananas", "eggs", "sourdough bread", "chicken breast", "greek yogurt", "pasta", "butter"),
    *("toilet roll", "coffee beans", "cheddar", "avocado", "nappies size 4", "olive oil", "gluten free bread"),
    *("dog food", "washing tablets", "crisps", "red wine", "salmon", "tomatoes", "baby wipes", "ice cream"),
)
BRANDS = ("Alderley Farm", "Oatsworth", "Bramble & Co", "Own Label", "Kestrel", "Nonna Pia", "Little Fern", "Taylwyn")


def grocery_app(folder: Path, n_pages: int = 420, seed: int = 11) -> Raw:
    """Parquet. One row per impression of a grocery app and web shop, dumped from a warehouse with abbreviated names.

    Traps:
    * No id of a search: visitId is a visit of several searches, srchSeq restarts at 1 in each, and reqId changes with
      every page load of endless scrolling, so that a list would break up. The session is visitId with srchSeq.
    * slotIdx starts at 0 and does *not* restart on later pages, so pgIdx is not needed, though pages have 12 (app) or
      24 (web) entries. orgRnk is the rank (from 1) before sponsored products and shuffling; null if sponsored.
    * abArm has ctl, ltrB and rnd; only rnd is a random order, and its name contains neither "random" nor "shuffle".
    * ltrScr is the production score; nutriScr (A to E, as on the package) only sounds like one. Sponsored slots and
      rnd lists are not sorted by it.
    * tapCnt is a count. atbQty and ordQty are quantities; quick-add buttons make atbQty > 0 without a tap.
    * prevBghtCnt is earlier purchases, known before the impression: a feature, not an outcome.
    * catCd is a code, not a quantity. ratg is -1 without ratings, stckQty 9999 if not tracked, prcWas 0 if no offer.
    * skuCd identifies products; eanCd is empty for loose produce. custNo is 0 for guests, dvcId is always there.
    * srchTrmRaw is what was typed (case, blanks); srchTrm is what was searched. basketVal, loyTier, storeNo, etlBatch
      and schemaVer are constant within lists; catalogVer is a ranker's index version.
    """
    rng = np.random.default_rng(seed)
    n = 700
    quality = rng.normal(size=n)
    category = rng.integers(0, 18, n)
    sku = rng.choice(np.arange(10_000_000, 99_999_999, 37), n, replace=False)
    loose = rng.random(n) < 0.12
    ean = 5_010_000_000_000 + rng.choice(9_999_999_999, n, replace=False)
    price = np.round(rng.lognormal(0.9, 0.6, n), 2)
    was = np.where(rng.random(n) < 0.25, np.round(price * 1.25, 2), 0.0)
    n_ratings = np.where(rng.random(n) < 0.25, 0, rng.geometric(0.02, n))
    rating = np.where(n_ratings == 0, -1.0, np.clip(np.round(4 + 0.4 * quality + rng.normal(0, 0.2, n), 1), 1, 5))
    stock = np.where(rng.random((3, n)) < 0.1, 9999, rng.integers(0, 120, (3, n)))
    candidates = [rng.choice(n, 60, replace=False) for _ in GROCERIES]
    match = rng.normal(size=(len(GROCERIES), n))
    bought = {}
    weights = zipf_weights(len(GROCERIES))
    rows, visit, step, now, guest = [], 0, 0, START, False
    for number in range(n_pages):
        now += int(rng.integers(5, 240))
        if number == 0 or rng.random() < 0.35:
            visit, step, person = visit + 1, 0, int(rng.integers(110))
            guest, basket = bool(rng.random() < 0.2), 0.0
            channel = ["APP_IOS", "APP_AND", "WEB"][person % 3]
            arm = rng.choice(["ctl", "ltrB", "rnd"], p=[0.55, 0.35, 0.1])
        step += 1
        size = 24 if channel == "WEB" else 12
        n_shown = size * int(rng.choice([1, 2], p=[0.7, 0.3]))
        query, store = int(rng.choice(len(GROCERIES), p=weights)), person % 3
        pool = candidates[query]
        known = bought.setdefault(person, rng.poisson(0.25, n))
        like = 0.9 * quality + 0.9 * match[query] + 0.7 * (known > 0) - 0.15 * (price > 6)
        score = (0.6 if arm == "ltrB" else 1.0) * (like[pool] + rng.normal(0, 0.8, len(pool)))
        order = np.argsort(-score)
        organic_rank = dict(zip(pool[order].tolist(), range(1, len(pool) + 1), strict=True))
        scores = dict(zip(pool.tolist(), score.tolist(), strict=True))
        if arm == "rnd":
            order = rng.permutation(len(pool))
        shown, sponsored = pool[order].tolist(), set()
        if number % 3 != 2:
            for slot in (1, 5):
                paid = int(rng.choice(pool))
                if paid not in sponsored:
                    shown.remove(paid)
                    shown.insert(slot, paid)
                    sponsored.add(paid)
        typed = GROCERIES[query]
        typed = [typed, typed.capitalize(), typed + " ", typed.upper()][rng.choice(4, p=[0.6, 0.25, 0.1, 0.05])]
        depth, spent = 6 if channel != "WEB" else 9, 0.0
        for slot, entry in enumerate(shown[:n_shown]):
            looked = rng.random() < 1 / (1 + slot / depth * 2) * (0.7 if entry in sponsored else 1)
            tapped = looked and rng.random() < sigmoid(like[entry] - 2.2)
            taps = int(1 + (rng.random() < 0.08)) if tapped else 0
            quick = looked and not tapped and rng.random() < 0.12 * sigmoid(like[entry] - 1.5)
            added = int(rng.integers(1, 4)) if quick or (tapped and rng.random() < 0.45) else 0
            ordered = added if added and rng.random() < 0.7 else 0
            page = slot // size
            rows.append(
                {
                    "evtTs": (now + 9 * page) * 1000 + 417,
                    "visitId": 880_000_000_000 + 7919 * visit,
                    "srchSeq": step,
                    "reqId": f"{base36(7_000_000 + 31 * number + page)}-{page}{store}",
                    "custNo": 0 if guest else 40_112_000 + 13 * person,
                    "dvcId": f"{(person * 2_654_435_761) % 2**32:08X}",
                    "chnl": channel,
                    "appVer": None if channel == "WEB" else ["7.14.0", "7.15.2"][visit % 2],
                    "storeNo": [1042, 2077, 3310][store],
                    "loyTier": [None, "BRZ", "SLV", "GLD"][0 if guest else person % 4],
                    "basketVal": round(basket, 2),
                    "srchTrmRaw": typed,
                    "srchTrm": GROCERIES[query],
                    "pgIdx": page,
                    "slotIdx": slot,
                    "orgRnk": None if entry in sponsored else organic_rank[entry],
                    "skuCd": int(sku[entry]),
                    "eanCd": None if loose[entry] else int(ean[entry]),
                    "prdNm": f"{BRANDS[entry % 8]} {GROCERIES[entry % 24]} {int(50 * (1 + entry % 29))}g",
                    "brnd": None if loose[entry] else BRANDS[entry % 8],
                    "catCd": int(1010 + 10 * category[entry]),
                    "prc": float(price[entry]),
                    "prcWas": float(was[entry]),
                    "ratg": float(rating[entry]),
                    "ratgCnt": int(n_ratings[entry]),
                    "stckQty": int(stock[store, entry]),
                    "nutriScr": [*"ABCDE", None][entry * 7 % 6],
                    "orgnc": "Y" if entry % 9 == 0 else "N",
                    "prevBghtCnt": int(known[entry]),
                    "spnsd": int(entry in sponsored),
                    "ltrScr": round(scores[entry], 5),
                    "tapCnt": taps,
                    "atbQty": added,
                    "ordQty": ordered,
                    "abArm": str(arm),
                    "catalogVer": 20250928 + number // 150,
                    "etlBatch": 55_100 + number // 40,
                    "schemaVer": 4,
                }
            )
            spent += added * float(price[entry])
        now, basket = now + 20, basket + spent
    table = pa.Table.from_pylist(rows)
    at = table.column("evtTs").cast(pa.timestamp("ms"))
    table = table.set_column(0, "evtTs", at)
    for name in ("spnsd", "tapCnt"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.int8()))
    pq.write_table(table, folder / "srch_impr_fct.parquet")
    roles = {
        "session": {"visitId,srchSeq", "srchSeq,visitId"},
        "query": "srchTrm",
        "document": "skuCd",
        "position": "slotIdx",
        "click": "tapCnt",
        "time": "evtTs",
        "user": {"custNo", "dvcId"},
        "grade": ["atbQty", "ordQty"],
        "policy_score": "ltrScr",
        "intervention": "abArm",
        "bias": ["chnl", "spnsd"],
        "feature": [
            *("brnd", "catCd", "prc", "prcWas", "ratg", "ratgCnt", "stckQty", "nutriScr", "orgnc", "prevBghtCnt"),
        ],
    }
    return Raw(folder / "srch_impr_fct.parquet", roles, len(rows), sum(row["tapCnt"] > 0 for row in rows))


SUBJECTS = (
    *("künstliche intelligenz", "statistik", "grundgesetz kommentar", "klimawandel", "faust", "qualitative forschung"),
    *("python programmieren", "makroökonomie", "kant kritik der reinen vernunft", "pflegewissenschaft", "anatomie"),
    *("organische chemie", "bauhaus", "mittelhochdeutsch", "lineare algebra", "marketing", "migration", "bgb"),
)
FIELDS = ("alle Felder", "Titel", "Person", "Schlagwort")
AGENTS = ("Mozilla/5.0 (Windows NT 10.0; Win64; x64)", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1)", "OPAC-Kiosk/2.3")


def library(folder: Path, n_pages: int = 450, seed: int = 12) -> Raw:
    """TSV. Events of a German university library's catalogue: hits shown, full records opened, notes, orders, facets.

    Traps:
    * German names with umlauts. ereignis tells impressions ("Treffer") from clicks ("Vollanzeige"), holds
      ("Bestellung") and bookmarks ("Merkliste"); "Facette" and "Blättern" have no document.
    * rang is empty but for Treffer, and ranks have gaps (suppressed titles, about 4 %): they must not be closed.
    * suchnr is one search; sitzung is a cookie with several searches. leserausweis is empty unless logged in.
    * Some Vollanzeige rows come from permalinks, without suchnr and query, and some repeat: they are no further clicks.
    * ppn looks like a number, but has leading zeros, and sometimes X as check digit. signatur is nearly as unique, but
      empty for e-resources. titel is unique, too, but only in this sample.
    * relevanz is the Solr score, but the user sorted some lists by year (sortierung): then it does not order them.
    * erscheinungsjahr is 9999 for running journals, or empty; ddc (004, 510) is a code. verfügbar is ja or nein.
    * trefferzahl, benutzergruppe, user_agent and ip_kurz are constant in a search. verweildauer_s exists only for
      Vollanzeige: an outcome. zeitstempel is in ms. Document columns are filled in Treffer rows only.
    """
    rng = np.random.default_rng(seed)
    n = 600
    quality = rng.normal(size=n)
    numbers = rng.choice(999_999_999, n, replace=False)
    ppn = [f"{number:09d}{'0123456789X'[sum(map(int, str(number))) % 11]}" for number in numbers]
    kind = rng.choice(["Buch", "E-Book", "Zeitschrift", "DVD", "Hochschulschrift"], n, p=[0.5, 0.25, 0.1, 0.05, 0.1])
    year = np.where(kind == "Zeitschrift", 9999, 2025 - rng.geometric(0.07, n)).astype(object)
    year[rng.random(n) < 0.04] = None
    copies = np.where(kind == "E-Book", 0, rng.integers(1, 15, n))
    loans = rng.poisson(np.exp(2 + 0.7 * quality))
    ddc = rng.choice(["004", "100", "300", "330", "340", "370", "510", "540", "610", "700", "830", ""], n)
    language = rng.choice(["ger", "eng", "fre", "lat"], n, p=[0.65, 0.28, 0.04, 0.03])
    branch = np.where(kind == "E-Book", "Online", rng.choice(["Zentralbibliothek", "Jura", "Medizin"], n))
    free = rng.random(n) < 0.7
    pools = {(s, f): rng.choice(n, 45, replace=False) for s in range(len(SUBJECTS)) for f in range(4)}
    match = rng.normal(size=(len(SUBJECTS), n))
    age = np.array([30.0 if value in (None, 9999) else 2025.0 - value for value in year])
    weights = zipf_weights(len(SUBJECTS), 0.8)
    events, impressions, clicks, cookie, person = [], 0, 0, "", 0
    for number in range(n_pages):
        at = (START + 75 * number) * 1000 + int(rng.integers(1000))
        if number == 0 or rng.random() < 0.5:
            cookie, person = f"{rng.integers(2**60):015x}", int(rng.integers(160))
            logged_in = rng.random() < 0.45
        device = person % 5 % 3
        subject, field = int(rng.choice(len(SUBJECTS), p=weights)), int(rng.choice(4, p=[0.7, 0.15, 0.1, 0.05]))
        pool = pools[subject, field]
        like = 0.8 * quality[pool] + match[subject, pool] + 0.5 * free[pool] - 0.02 * np.minimum(age[pool], 40)
        score = np.round(np.exp(2 + 0.35 * (like + rng.normal(0, 0.9, len(pool)))), 6)
        by_year = rng.random() < 0.1
        order = np.argsort(age[pool], kind="stable") if by_year else np.argsort(-score)
        depth = 40 if rng.random() < 0.2 else 20
        person_columns = {
            "sitzung": cookie,
            "leserausweis": f"2900{person * 7907 % 1_000_003:07d}" if logged_in else "",
            "benutzergruppe": ["Studierende", "Beschäftigte", "Externe"][person % 3] if logged_in else "",
            "endgerät": ["Desktop", "Mobil", "OPAC-Terminal"][device],
            "user_agent": AGENTS[device],
            "ip_kurz": f"141.20.{person % 9}.*",
        }
        search = {
            "suchnr": f"20251001-{40_000 + 3 * number:06d}",
            "suchbegriff": SUBJECTS[subject],
            "suchfeld": FIELDS[field],
            "sortierung": "Jahr absteigend" if by_year else "Relevanz",
            "trefferzahl": int(120 + 977 * subject % 40_000 + 11 * field),
        }

        def log(offset_ms, event, columns):
            events.append({"zeitstempel": at + int(offset_ms), "ereignis": event} | columns)  # noqa: B023

        base = person_columns | search
        examined = rng.random(depth) < 1 / (1 + np.arange(depth) / (4 if device == 0 else 2.5))
        suppressed = rng.random(depth) < 0.04
        suppressed[0] = False
        if depth == 40:
            log(24_500, "Blättern", base)
        for place in range(depth):
            if suppressed[place]:
                continue
            spot = int(order[place])
            entry = int(pool[spot])
            record = {
                "rang": place + 1,
                "ppn": ppn[entry],
                "titel": f"{SUBJECTS[entry % 17].title()} : {['Einführung', 'Handbuch', 'Lehrbuch'][entry % 3]}"
                f" / {'ABDEFGHKLMNPRSTW'[entry * 5 % 16]}. {['Müller', 'Weiß', 'Yılmaz', 'Krüger'][entry % 4]}",
                "signatur": ""
                if kind[entry] == "E-Book"
                else f"{'ABCDEFGH'[entry % 8]} {1000 + entry * 3} K{entry % 9}",
                "medientyp": str(kind[entry]),
                "sprache": str(language[entry]),
                "erscheinungsjahr": "" if year[entry] is None else int(year[entry]),
                "ddc": str(ddc[entry]),
                "standort": str(branch[entry]),
                "exemplare": int(copies[entry]),
                "ausleihen_gesamt": int(loans[entry]),
                "verfügbar": "ja" if free[entry] else "nein",
                "relevanz": float(score[spot]),
            }
            log(25_000 if place >= 20 else 0, "Treffer", base | record)
            impressions += 1
            if not examined[place] or rng.random() > sigmoid(like[spot] - 1.8):
                continue
            clicks += 1
            opened = 4_000 + 2_500 * place + (25_000 if place >= 20 else 0)
            seen = base | {"ppn": ppn[entry]}
            log(opened, "Vollanzeige", seen | {"verweildauer_s": int(rng.geometric(0.03))})
            if rng.random() < 0.05:
                log(opened + 60_000, "Vollanzeige", seen | {"verweildauer_s": int(rng.geometric(0.05))})
            if rng.random() < 0.25:
                log(opened + 9_000, "Merkliste", seen)
            if kind[entry] != "E-Book" and rng.random() < 0.2:
                log(opened + 12_000, "Bestellung", seen)
        if rng.random() < 0.15:
            log(70_000, "Facette", base)
        if rng.random() < 0.06:  # a permalink, from a reading list
            log(71_000, "Vollanzeige", person_columns | {"ppn": ppn[rng.integers(n)], "verweildauer_s": 15})
    events.sort(key=lambda event: event["zeitstempel"])
    names = (
        *("zeitstempel", "sitzung", "leserausweis", "benutzergruppe", "endgerät", "user_agent", "ip_kurz", "ereignis"),
        *("suchnr", "suchbegriff", "suchfeld", "sortierung", "trefferzahl", "rang", "ppn", "titel", "signatur"),
        *("medientyp", "sprache", "erscheinungsjahr", "ddc", "standort", "exemplare", "ausleihen_gesamt", "verfügbar"),
        *("relevanz", "verweildauer_s"),
    )
    with (folder / "opac_ereignisse.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(events)
    roles = {
        "session": "suchnr",
        "query": {"suchbegriff", "suchbegriff,suchfeld", "suchfeld,suchbegriff"},
        "document": "ppn",
        "position": "rang",
        "event": "ereignis",
        "impression_event": "Treffer",
        "click_event": "Vollanzeige",
        "time": "zeitstempel",
        "user": {"leserausweis", "sitzung"},
        "grade": ["Merkliste", "Bestellung"],
        "policy_score": "relevanz",
        "bias": ["endgerät"],
        "feature": [
            *("medientyp", "sprache", "erscheinungsjahr", "ddc", "standort", "exemplare", "ausleihen_gesamt"),
            "verfügbar",
        ],
    }
    return Raw(folder / "opac_ereignisse.tsv", roles, impressions, clicks)


def video_recommender(folder: Path, n_pages: int = 500, seed: int = 13) -> Raw:
    """JSON lines. "Watch next" of a video service: one nested object per slate, with parallel arrays of 8, 12 or 20.

    Traps:
    * There is no search: the "query" is the video that was just watched (seed.videoId), from the same ids as the
      recommended documents (slate.videoIds). The order of the arrays is the position; there is no column of it.
    * slate.tapped (booleans) is the click. slate.watchedSec is an outcome, but autoplay makes it positive in slot 0
      without a tap, so that "nonzero only after clicks" fails: as a feature it would leak.
    * slate.seenBeforePct is how much had been watched *before*: a feature, though it looks like an outcome.
    * slate.rankScore orders the slates, except for slot 2 if promoted, and shuffles. slate.pCtr is one of its
      ingredients, and roughly sorted too: a feature.
    * exp.policy is null for production, and shuffle_top5 if the first five were shuffled, only these. exp.bucket
      (0 to 99) is a hash of the account, not an intervention. model is the ranker's version.
    * seed.watchedPct, seed.title and client.*, viewer.* are constant in a slate. slate.genreIds are codes,
      slate.durationSec is -1 for live streams, slate.rating has nulls; slate.channels work like brands.
    * ts is in microseconds. slate.titles are as unique as ids (nearly). viewer.acct is null for guests, who have
      client.install only.
    """
    rng = np.random.default_rng(seed)
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
    n = 500
    ids = ["".join(row) for row in rng.choice(letters, (n, 11))]
    words = ("sourdough", "gravel bike", "jazz piano", "retro pc", "van life", "street food", "calculus", "bouldering")
    forms = ("review", "in 10 minutes", "for beginners", "gone wrong", "full documentary", "live", "explained")
    titles = [f"{words[entry % 8].title()} {forms[entry % 7]} #{entry // 3}" for entry in range(n)]
    quality = rng.normal(size=n)
    topic = np.arange(n) % 8
    duration = np.where(rng.random(n) < 0.05, -1, rng.integers(45, 5400, n))
    age_hours = np.round(rng.exponential(900, n), 1)
    rating = np.where(rng.random(n) < 0.2, np.nan, np.clip(np.round(3.8 + 0.5 * quality, 1), 1, 5))
    channel = rng.integers(0, 45, n)
    seeds = rng.choice(n, 30, replace=False)
    pools = [rng.choice(np.setdiff1d(np.arange(n), [start]), 50, replace=False) for start in seeds]
    weights = zipf_weights(len(seeds), 0.8)
    pair = rng.normal(size=(len(seeds), n))
    text, impressions, clicks = [], 0, 0
    for number in range(n_pages):
        person = int(rng.integers(130))
        form = ["tv", "phone", "web"][person % 3]
        size = {"tv": 8, "phone": 12, "web": 20}[form]
        which = int(rng.choice(len(seeds), p=weights))
        pool = pools[which]
        subscribed = (channel[pool] * 31 + person) % 11 == 0
        before = np.where(rng.random(len(pool)) < 0.12, np.round(rng.random(len(pool)), 2), 0.0)
        like = 0.8 * quality[pool] + 0.8 * pair[which, pool] + 0.6 * (topic[pool] == topic[seeds[which]])
        like += 0.7 * subscribed - 0.8 * (before > 0.8)
        ctr = sigmoid(like - 2 + rng.normal(0, 0.5, len(pool)))
        score = ctr * np.exp(rng.normal(0, 0.25, len(pool)))
        order = np.argsort(-score)[:size]
        policy = None
        if rng.random() < 0.12:
            policy = "shuffle_top5"
            order[:5] = rng.permutation(order[:5])
        promoted = np.zeros(size, dtype=bool)
        if number % 4 == 1:
            paid = int(rng.integers(len(pool)))
            order = np.r_[order[order != paid], paid] if paid in order else np.r_[order[:-1], paid]
            order = np.insert(order[:-1], 2, order[-1])
            promoted[2] = True
        examined = rng.random(size) < np.minimum(1, 1.1 / (1 + np.arange(size) / (2 if form == "tv" else 4)))
        chance = sigmoid(like[order] - 2.7) * np.where(promoted, 0.6, 1)
        tapped = examined & (rng.random(size) < chance)
        autoplay = bool(person % 4 != 0)
        length = np.where(duration[pool[order]] < 0, 1800, duration[pool[order]])
        watched = np.where(tapped, np.round(length * rng.beta(1.2, 1.5, size), 1) + 1, 0.0)
        if autoplay and not tapped.any() and rng.random() < 0.5:
            watched[0] = round(float(rng.exponential(25)) + 1, 1)
        liked = tapped & (rng.random(size) < 0.15)
        saved = tapped & (rng.random(size) < 0.1)
        shown = pool[order]
        guest = person % 7 == 0
        slate = {
            "id": f"sl_{base36(10_000_000_000 + 48_611 * number)}",
            "videoIds": [ids[entry] for entry in shown],
            "titles": [titles[entry] for entry in shown],
            "channels": [f"UC{channel[entry]:02d}x{channel[entry] * 7919 % 997:03d}" for entry in shown],
            "genreIds": [int(10 + 3 * topic[entry]) for entry in shown],
            "durationSec": duration[shown].tolist(),
            "ageHours": age_hours[shown].tolist(),
            "rating": [None if np.isnan(value) else float(value) for value in rating[shown]],
            "subscribed": subscribed[order].tolist(),
            "seenBeforePct": before[order].tolist(),
            "pCtr": np.round(ctr[order], 5).tolist(),
            "rankScore": np.round(score[order], 6).tolist(),
            "promoted": promoted.tolist(),
            "tapped": tapped.tolist(),
            "watchedSec": watched.tolist(),
            "liked": liked.tolist(),
            "savedForLater": saved.tolist(),
        }
        row = {
            "ts": (START + 51 * number) * 1_000_000 + int(rng.integers(1_000_000)),
            "surface": "watch_next",
            "viewer": {
                "acct": None if guest else f"01J{base36(9_000_000_000 + person * 104_729).upper():0>10}",
                "country": ["BR", "MX", "PT", None][person % 4],
                "plan": "free" if guest else ["free", "premium"][person % 2],
            },
            "client": {"install": f"{person * 40_503 % 65_536:04x}-{person:03d}", "form": form, "autoplay": autoplay},
            "seed": {
                "videoId": ids[seeds[which]],
                "title": titles[seeds[which]],
                "watchedPct": round(float(rng.beta(2, 1)), 2),
            },
            "exp": {"bucket": person * 37 % 100, "policy": policy},
            "model": ["wn-0917", "wn-1002"][number * 2 // n_pages],
            "slate": slate,
        }
        text.append(json.dumps(row))
        impressions += size
        clicks += int(tapped.sum())
    (folder / "watch_next.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    roles = {
        "session": "slate.id",
        "query": "seed.videoId",
        "document": "slate.videoIds",
        "click": "slate.tapped",
        "time": "ts",
        "user": {"viewer.acct", "client.install"},
        "grade": ["slate.liked", "slate.savedForLater"],
        "policy_score": "slate.rankScore",
        "intervention": "exp.policy",
        "bias": ["client.form", "slate.promoted"],
        "feature": [
            *("slate.channels", "slate.genreIds", "slate.durationSec", "slate.ageHours", "slate.rating"),
            *("slate.subscribed", "slate.seenBeforePct", "slate.pCtr"),
        ],
    }
    return Raw(folder / "watch_next.jsonl", roles, impressions, clicks)


TABLES = {"grocery app": grocery_app, "library": library, "video recommender": video_recommender}

# columns that need no role, with the roles that would do no harm
OPTIONAL = {
    "grocery app": {
        "storeNo": {"context", "bias"},
        "loyTier": {"context"},
        "basketVal": {"context"},
        "appVer": {"context", "bias"},
    },
    "library": {
        "benutzergruppe": {"context"},
        "suchfeld": {"context", "bias"},
        "sortierung": {"context", "bias", "intervention"},
        "trefferzahl": {"context"},
        "verweildauer_s": {"grade"},
    },
    "video recommender": {
        "slate.watchedSec": {"grade"},
        "client.autoplay": {"bias", "context"},
        "viewer.country": {"context"},
        "viewer.plan": {"context"},
        "seed.watchedPct": {"context"},
    },
}
