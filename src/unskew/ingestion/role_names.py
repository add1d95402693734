"""Words by which sites name columns, and words of values; case, separators and plurals do not matter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

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
# The same few words as abbreviations, and in German, French, Spanish, Italian, Dutch and Portuguese.
_MORE = """
session: such sitzung besuch visita visite bezoek seance recherche suche sesion busqueda sessione ricerca sessie
    zoekopdracht sessao pesquisa aufruf suchlauf consulta anfrage requete solicitud richiesta
query: such qry trm kw kwd begriff suchbegriff suchwort stichwort suchtext requete terme motcle mot busqueda consulta
    termino palabra ricerca termine parola zoekterm zoekwoord zoekopdracht term busca pesquisa termo palavra anfrage
    frage seed anchor
document: prd art itm artikel produkt ware dokument ppn angebot buch stelle produit annonce offre ouvrage livre
    documento producto articulo anuncio oferta libro prodotto articolo annuncio offerta boek vacature woning produto
    artigo livro vaga imovel objekt gtin barcode ref referenz referencia reference
position: rnk slt rang platz stelle platzierung posizione posicion posicao posto positie plaats plek lugar puesto orden
    ordre emplacement posit rango ordine volgorde ordem
click: picked clck tapped klick geklickt angeklickt clic clique clics pulsado toque angesehen geklikt clicado cliccato
    klik apertura aufgerufen geoffnet
time: tm dt dttm zeit zeitstempel zeitpunkt datum uhrzeit heure horodatage date fecha hora momento marca ora tijd
    tijdstip tijdstempel instante quando quand data
user: kaeufer kaufer acheteur comprador acquirente koper usr cust cst acct acc mbr vstr nutzer benutzer kunde kunden
    besucher leser konto mitglied utilisateur client visiteur lecteur compte abonne usuario cliente visitante lector
    cuenta utente visitatore lettore gebruiker klant bezoeker lezer utilizador leitor conta
event: evt ereignis aktion art typ evenement evento accion azione acao tipo gebeurtenis actie handeling
page: pg seite pagina
score: scr punkte punktzahl relevanz bewertungszahl pertinence puntuacion puntaje relevancia punteggio rilevanza
    relevantie pontuacao pontos logit
seen: vis vsbl gesehen sichtbar vu visto visible vista gezien zichtbaar visivel
sponsored: spns spnsd spnsrd spon gesponsert anzeige werbung sponsorise publicite pub patrocinado anuncio destacado
    sponsorizzato promosso evidenza gesponsord advertentie promocionado promovido destaque
outcome: atb atc bskt bsk crt ord prch purch bght bkd rsv warenkorb korb gekauft kauf bestellt bestellung merkliste
    gemerkt merkzettel gebucht buchung vormerkung ausleihe bewerbung beworben kontakt panier achat achete commande
    commandee reservation favori candidature carrito cesta compra comprado pedido reserva favorito postulacion contacto
    carrello acquisto acquistato ordine prenotazione preferito candidatura winkelwagen winkelmand gekocht aankoop
    bestelling besteld reservering favoriet sollicitatie carrinho comprou encomenda geteilt partage compartido condiviso
    gedeeld abonniert cv
dwell: dwl verweildauer lesezeit lesedauer dauer duree permanencia duracion tiempo durata verblijf leestijd duur duracao
    watched
experiment: exp xp arm abtest policy strategy versuch gruppe variante bras grupo braccio gruppo groep proef
context: alter stunde heure edad hora eta ora leeftijd uur idade fidelity treue
layout: ansicht disposition affichage vista weergave
category: warengruppe gattung medientyp categorie categoria kategorie rubrik rubrique rayon ctg ctgr sparte abteilung
    thema genre sachgruppe
search: stadt ort ziel ville lieu ciudad citta plaats cidade feld filtre filtro champ campo veld
counter: sq cnt schritt laufnr etape paso passo stap indice
filler: nbr idx index cd kd raw norm nummer nr numero num nro cod code codigo codice ident schluessel cle clave chiave
    sleutel de der die das du des la le el il da do di van del della ist wurde est fue
id: kennung ausweis card karte token
opened: ansicht detail details klick geklickt angeklickt geoffnet offnen aufruf clic ouvrir ouvert consultation fiche
    apertura abrir abierto aperto aprire clique aberto klik geopend openen bekeken
shown: treffer anzeige angezeigt einblendung trefferliste resultat affichage affiche impresion mostrado impressione
    mostrato visualizzazione weergave getoond vertoning impressie impressao exibicao exibido resultado risultato
    resultaat
device: mobil handy telefono telefon smart rechner ordinateur ordenador computador tableta telephone terminal kiosk rwd
    mob dsk dsktp tab tblt
purchase: ord prch purch bght bkd gekauft kauf bestellt bestellung gebucht buchung achat achete commande compra comprado
    pedido acquisto acquistato ordine prenotazione gekocht aankoop bestelling besteld comprou encomenda
before: prev previous past prior before earlier history hist lifetime total ever last frueher bisher vorher gesamt avant
    anterior anteriore precedente vorig eerder avg mean rate ratio per
after: skip skipped back close closed saut abbruch absprung rebond rebote retour refunded abandon bounce bounced refund
    cancel cancelled return returned dislike disliked hidden hide report reported dismissed storno
number: nbr no nr num nummer numero cd code codigo codice key ident nro
"""


def _listed(text: str) -> dict[str, frozenset[str]]:
    parts = (entry.partition(":") for entry in re.split(r"\n(?=\w)", text.strip()))
    return {role: frozenset(listed.split()) for role, _, listed in parts}


def _consonants(word: str) -> str:
    """The abbreviation without vowels and double letters: `search` → srch; nothing if it would be too short."""
    short = re.sub(r"(.)\1", r"\1", word[0] + re.sub("[aeiou]", "", word[1:]))
    return short if len(short) >= 3 else word


def _vocabulary() -> dict[str, frozenset[str]]:
    english, more = _listed(_WORDS), _listed(_MORE)
    listed = {role: english.get(role, frozenset()) | more.get(role, frozenset()) for role in {**english, **more}}
    short = {role: {_consonants(noun) for noun in nouns} for role, nouns in english.items()}
    return {role: nouns | short.get(role, set()) for role, nouns in listed.items()}


WORDS = _vocabulary()
_ALL = frozenset().union(*WORDS.values())
SHUFFLES = ("shuffl", "random", "explor", "permut", "swap", "scrambl", "mixed order", "zufall", "rnd", "aleat", "azar")


def words(name: str) -> list[str]:
    """Lower-case words of a name, without plurals and accents: `listingIds` → listing, id; `suchnr` → such, nr."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c)).replace("ß", "ss")
    split = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3 \2", plain)
    found = re.findall(r"[A-Za-z]+|\d+", split)
    return [part for word in found for part in _parts(_singular(word.lower()))]


@cache
def _parts(word: str) -> list[str]:
    """The two known words of a compound: `itemid` → item, id; `zeitpunkt` stays, as it is known itself."""
    if word in _ALL or len(word) < 5:
        return [word]
    for cut in range(len(word) - 2, 2, -1):
        first, last = word[:cut], word[cut:]
        if last in _ALL and (len(last) > 2 or last in WORDS["id"] | WORDS["number"]):
            for known in (first, first.removesuffix("s"), first.removesuffix("n"), first.removesuffix("en")):
                if known in _ALL and len(known) > 2:
                    return [known, last]
    return [word]


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
    """Whether a name says that the values are ids; a number says it at the end: `customer_no`, not `no_of_rooms`."""
    last = words(name.rpartition(".")[2])
    counts = WORDS["page"] | WORDS["position"] | WORDS["counter"]
    numbered = len(last) > 1 and last[-1] in WORDS["number"] and last[-2] not in counts
    return bool(WORDS["id"] & set(last)) or numbered


def says(kind: str, text: str) -> bool:
    """Whether a name or value contains a word of this kind."""
    return bool(WORDS[kind] & set(words(text)))


def any_part(parts: Sequence[str], text: str) -> bool:
    return any(part in text.lower() for part in parts)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word
