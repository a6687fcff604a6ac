"""The shapes of keys and tokens, as their issuers publish them. Data.

Each row: a name, the words in every such key in lower case, and its pattern. A pattern starts with
the word and matches the letters as the issuer writes them.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from holdfast.secret_scan import Shape, Span, prefixed

# Not inside a longer word: base64 and hashes contain every short word somewhere.
_ALONE = r"(?<![A-Za-z0-9+/_-])"
_REST = r"[A-Za-z0-9_-]*+"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"

_PREFIXES = (
    ("1password service account", "ops_eyj", r"ops_eyJ[A-Za-z0-9+/=_-]{100,}+"),
    ("1password secret key", "a3-", _ALONE + r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,6}-?){5}"),
    ("adafruit", "aio_", _ALONE + r"aio_[A-Za-z0-9]{26,30}"),
    ("age", "age-secret-key-", r"AGE-SECRET-KEY-[A-Z0-9-]{40,}+"),
    ("airtable token", "pat", _ALONE + r"pat[A-Za-z0-9]{14}\.[a-f0-9]{60,}+"),
    ("alibaba", "ltai", _ALONE + r"LTAI[A-Za-z0-9]{12,24}(?![A-Za-z0-9])"),
    ("artifactory", "akcp", _ALONE + r"AKCp[A-Za-z0-9]{60,}+"),
    ("artifactory reference", "cmvmd", _ALONE + r"cmVmd[A-Za-z0-9]{50,}+"),
    ("asana", "1/ 2/", r"(?<![A-Za-z0-9/._-])[12]/[0-9]{13,20}(?:/[0-9]{13,20})?:[a-f0-9]{32}"),
    ("aws bedrock", "absk bedrock-api-key-", r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=]{60,}+"),
    ("aws id", "abia acca a3t", _ALONE + r"(?:ABIA|ACCA|A3T[A-Z0-9])[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("bitbucket", "atbb", _ALONE + r"ATBB[A-Za-z0-9]{20,}+"),
    ("buildkite", "bkua_ bkct_ bkaj_", r"bk(?:ua|ct|aj)_[A-Za-z0-9]{36,}+"),
    ("circleci", "ccipat_ ccipr", r"CCIP(?:AT|RJ)_[A-Za-z0-9]{16,}+_[a-f0-9]{40}"),
    ("clojars", "clojars_", r"CLOJARS_[a-f0-9]{60}"),
    ("cloudflare origin key", "v1.0-", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}+"),
    ("contentful", "cfpat-", r"CFPAT-[A-Za-z0-9_-]{40,}+"),
    ("crates.io", "cio", _ALONE + r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("digitalocean", "doo_v1_ dop_v1_ dor_v1_", r"do[opr]_v1_[a-fA-F0-9]{60,}+"),
    ("doppler", "dp.", r"(?<![A-Za-z0-9])dp\.(?:pt|ct|st|sa|scim|audit)\.[A-Za-z0-9._-]{36,}+"),
    ("dropbox", "sl.", _ALONE + r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}+"),
    ("duffel", "duffel_", r"duffel_(?:test|live)_[A-Za-z0-9_=-]{40,}+"),
    ("dynatrace", "dt0", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{20,24}\.[A-Z0-9]{60,}+"),
    ("easypost", "ezak eztk", _ALONE + r"EZ[AT]K[a-fA-F0-9A-Za-z]{54}"),
    ("facebook", "eaa", _ALONE + r"EAA[A-Za-z0-9]{90,}+"),
    ("figma", "figd_ figu_ figo", r"fig(?:d|u|oh|ur|ou|or)_[A-Za-z0-9_-]{36,}+"),
    ("firebase", "aaaa", _ALONE + r"AAAA[A-Za-z0-9_-]{7}:[A-Za-z0-9_-]{120,}+"),
    ("flutterwave", "flwseck flwpubk", r"FLW(?:SECK|PUBK)(?:_TEST)?-[A-Za-z0-9]{12,}+(?:-X)?"),
    ("fly", "fo1_ fm1a_ fm1r_ fm2_", _ALONE + r"(?:fo1|fm1[ar]|fm2)_[A-Za-z0-9+/=_,-]{40,}+"),
    ("frame.io", "fio-u-", r"fio-u-[A-Za-z0-9_=-]{60,}+"),
    ("gitea", "gta_", _ALONE + r"gta_[A-Za-z0-9]{32,}+"),
    ("gitlab", "gloas- glimt- glffct- glwt- gr1348941",
     r"(?:gl(?:oas|imt|ffct|wt)-|GR1348941)[A-Za-z0-9_-]{20,}+"),
    ("google refresh token", "1//0", r"(?<![A-Za-z0-9/:])1//0[A-Za-z0-9_-]{40,}+"),
    ("grafana", "glsa_", r"glsa_[A-Za-z0-9]{30,}+_[A-Fa-f0-9]{8}"),
    ("grafana cloud", "glc_", r"glc_[A-Za-z0-9+/=]{32,}+"),
    ("harness", "pat. sat.", _ALONE + r"[ps]at\.[\w-]{20,24}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    ("heroku", "hrku-", r"HRKU-[A-Za-z0-9_-]{30,}+"),
    ("hubspot", "pat-", _ALONE + r"pat-(?:na|eu|ap)[0-9]-" + _UUID),
    ("infracost", "ico-", _ALONE + r"ico-[A-Za-z0-9]{32}"),
    ("langsmith", "lsv2_", r"lsv2_(?:pt|sk)_[A-Za-z0-9]{32}_[A-Za-z0-9]{8,}+"),
    ("launchdarkly", "sdk- mob- api-", _ALONE + r"(?:sdk|mob|api)-" + _UUID),
    ("mapbox", "pk.eyj sk.eyj tk.eyj", r"[pst]k\.eyJ[A-Za-z0-9_-]{20,}+\.[A-Za-z0-9_-]{20,}+"),
    ("netlify", "nfp_ nfc_ nfo_ nfu_", _ALONE + r"nf[pcou]_[A-Za-z0-9]{36,}+"),
    ("new relic", "nrak nrii nrjs nrra nrsp nriq nral",
     r"(?<![A-Za-z0-9])NR(?:AK|II|JS|RA|SP|IQ|AL)-[A-Za-z0-9_-]{16,}+"),
    ("notion", "ntn_", _ALONE + r"ntn_[A-Za-z0-9]{40,}+"),
    ("notion integration", "secret_", r"(?<![A-Za-z0-9_])secret_[A-Za-z0-9]{43}(?![A-Za-z0-9_])"),
    ("nylas", "nyk_v0_", r"nyk_v0_[A-Za-z0-9]{40,}+"),
    ("octopus", "api-", _ALONE + r"API-[A-Z0-9]{26}(?![A-Za-z0-9-])"),
    ("openshift", "sha256~", r"sha256~[A-Za-z0-9_-]{40,}+"),
    ("pagerduty", "pdus+ pdeu+", r"pd(?:us|eu)\+_[A-Za-z0-9+_=-]{20,}+"),
    ("planetscale", "pscale_", r"pscale_[a-z]{2,8}_[A-Za-z0-9_.=-]{30,}+"),
    ("postman", "pmak-", r"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{30,}+"),
    ("postman collection", "pmat-", r"PMAT-[A-Z0-9]{26}"),
    ("prefect", "pnu_ pnb_", _ALONE + r"pn[ub]_[A-Za-z0-9]{36}"),
    ("pulumi", "pul-", r"(?<![A-Za-z0-9])pul-[a-f0-9]{40}"),
    ("readme", "rdme_", r"rdme_[a-z0-9]{60,}+"),
    ("render", "rnd_", _ALONE + r"rnd_[A-Za-z0-9]{28,}+"),
    ("rubygems", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    ("scalingo", "tk-us-", r"tk-us-[A-Za-z0-9_-]{40,}+"),
    ("sendinblue", "xkeysib- xsmtpsib-", r"x(?:key|smtp)sib-[a-f0-9]{60,}+-[A-Za-z0-9]{12,}+"),
    ("sentry", "sntryu_ sntrys_ sntrya_ sntryi_", r"sntry[usai]_[A-Za-z0-9+/=_-]{40,}+"),
    ("settlemint", "sm_aat_ sm_pat_ sm_sat_", r"sm_[aps]at_[A-Za-z0-9]{16,}+"),
    ("shippo", "shippo_", r"shippo_(?:live|test)_[a-fA-F0-9]{40}"),
    ("sonarqube", "sqp_ sqa_ squ_", _ALONE + r"sq[pau]_[a-z0-9]{40}"),
    ("sourcegraph", "sgp_", r"sgp_(?:(?:[A-Fa-f0-9]{16}|local)_)?[A-Fa-f0-9]{40}"),
    ("sourcegraph dotcom", "slk_", _ALONE + r"slk_[a-f0-9]{60,}+"),
    ("square", "eaaa", _ALONE + r"EAAA[A-Za-z0-9_-]{56,62}(?![A-Za-z0-9+/=_-])"),
    ("square id", "sq0", _ALONE + r"sq0[a-z]{3}-[A-Za-z0-9_-]{20,}+"),
    ("stackhawk", "hawk.", _ALONE + r"hawk\.[\w-]{20}\.[\w-]{20}"),
    ("supabase", "sbp_ sb_secret_", r"(?:sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,}+)"),
    ("tailscale", "tskey-", r"tskey-[a-z]{3,16}-[A-Za-z0-9]{8,}+-[A-Za-z0-9]{16,}+"),
    ("trello", "atta", _ALONE + r"ATTA[a-f0-9]{60,}+"),
    ("typeform", "tfp_", r"tfp_[A-Za-z0-9_.=-]{50,}+"),
    ("wakatime", "waka_", r"waka_" + _UUID),
    ("yandex", "aqvn ycaj t1.", _ALONE
     + r"(?:AQVN[A-Za-z0-9_-]{30,}+|YCAJ[A-Za-z0-9_-]{30,}+|t1\.[A-Za-z0-9_=-]{80,}+)"),
)  # fmt: skip

# The word is not at the start.
_INNER = (
    # Client secrets of Microsoft Entra (Azure AD): three characters, a digit, Q~.
    ("azure ad", "q~", _ALONE + r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{28,40}", 4),
    ("terraform cloud", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}+", 14),
    ("mailchimp", "-us", r"(?<![A-Za-z0-9])[a-f0-9]{32}-us[0-9]{1,2}(?![A-Za-z0-9])", 32),
    ("maxmind", "_mmk", _ALONE + r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", 36),
)

_HOOKS = (
    ("teams webhook", "webhook.office.com/ outlook.office",
     r"(?:webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/[^\s\"'`<>\\]{20,}+"),
    ("azure workflow", "logic.azure.com",
     r"logic\.azure\.com(?::\d{1,5})?/workflows/[^\s\"'`<>\\]{20,}+"),
    ("power automate", "api.powerplatform.com",
     r"api\.powerplatform\.com(?::\d{1,5})?/powerautomate/[^\s\"'`<>\\]{20,}+"),
    ("zapier webhook", "hooks.zapier.com/", r"hooks\.zapier\.com/hooks/catch/[\w/-]{10,}+"),
    ("google chat webhook", "chat.googleapis.com/",
     r"chat\.googleapis\.com/v1/spaces/[^\s\"'`<>\\]{20,}+"),
)  # fmt: skip

# Authorization: Token …, with any scheme. Placeholders contain a bracket or a dollar sign, and
# prose contains no digit.
_HEADER = r"""(?i:authorization)[\"'\]]{0,2}\s{0,4}[:=,]\s{0,4}[bru]{0,1}[\"'`]?
    (?:Token|ApiKey|Api-Key|Key|Bot|SSWS|GenieKey|PVEAPIToken|Splunk|Apikey|token|bot|apikey|key
      |DeepL-Auth-Key|Signature|Client-ID|MediaBrowser|Klaviyo-API-Key|OAuth|AccessKey|Discogs)
    [ =:]{1,2}(?:token=|key=)?[\"']?
    (?P<secret>(?=[A-Za-z._~+/=:|-]{0,60}[0-9])[A-Za-z0-9._~+/=:|-]{8,}+)"""

# -- under the name of a service

_SERVICES = """
    adobe airtable algolia alibaba amplitude asana atlassian auth0 beamer bittrex cloudflare
    codecov coinbase confluence confluent contentful datadog discord doppler droneci dropbox
    etsy fastly figma finicity finnhub flickr flyio freshbooks freshdesk gitter gocardless
    grafana heroku hubspot intercom jira kraken kucoin launchdarkly linkedin looker mailchimp
    mailgun mapbox mattermost messagebird mixpanel netlify newrelic new-relic new_relic notion
    nytimes okta opsgenie pagerduty plaid planetscale postman pubnub pulumi rapidapi rollbar
    rubygems sendbird sendgrid sentry shippo snyk sonarqube sourcegraph squarespace stripe
    sumologic supabase telegram trello twilio twitch twitter typeform vercel wandb yandex
    zendesk
"""
_NAMED = r"""[A-Za-z][\w-]{0,40}[\"'\])]{0,2}[ \t]{0,8}(?:[:=]>?|:=|\?=|,|=>)[ \t]{0,8}
    (?:[a-z]{1,2}(?=[\"']))?[\"'`]?(?P<secret>[A-Za-z0-9_=.+/-]{16,200}+)(?![\w(\[{/.-])"""
_RUN = re.compile(r"[A-Za-z0-9]{16,}+")
_CASE_CHANGE = re.compile(r"[a-z](?=[A-Z0-9])")
_COMMIT_NAME = re.compile(
    r"(?:sha|hash|digest|checksum|commit|revision|version|etag|url|uri)", re.I
)


def is_random(value: str) -> bool:
    """Whether a value looks generated: a long run of letters and digits without order."""
    run = max(_RUN.findall(value), key=len, default="")
    digits = sum(map(str.isdigit, run))
    if not digits or digits > len(run) - 2 or entropy(run) < 3.0:
        return False
    # A single digit is in many names. A generator changes the case every other letter.
    return digits > 1 or len(_CASE_CHANGE.findall(run)) > len(run) / 6


def entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    size = len(text)
    return -sum(many / size * math.log2(many / size) for many in Counter(text).values())


def _named_by_service(words: str) -> Shape:
    """A random value in a field whose name contains the name of a service."""
    plain = prefixed("service", words, _NAMED)

    def find(text: str, at: int) -> Span | None:
        span = plain.find(text, at)
        if span is None or not is_random(text[span[0] : span[1]]):
            return None
        return None if _COMMIT_NAME.search(text, at, span[0]) else span

    return Shape(plain.name, plain.words, find)


SHAPES: tuple[Shape, ...] = (
    *(prefixed(name, words, f"(?:{pattern}){_REST}") for name, words, pattern in _PREFIXES),
    *(
        prefixed(name, words, f"(?:{pattern}){_REST}", before=before)
        for name, words, pattern, before in _INNER
    ),
    *(prefixed(name, words, pattern) for name, words, pattern in _HOOKS),
    prefixed("authorization header", "authorization", _HEADER),
    _named_by_service(_SERVICES),
)
