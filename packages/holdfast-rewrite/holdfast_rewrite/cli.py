"""holdfast rewrite submit|show|held|classify|context-pack|route|lexicon|evaluate|export|erase"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from holdfast.app import Holdfast
from holdfast.cli.given import app_of, operator_of, operator_options, print_json, settings_of
from holdfast.config import Settings
from holdfast.ids import read_uuid
from holdfast_rewrite.cli_text import text_option
from holdfast_rewrite.enums import (
    CLASSIFIER_VERSION,
    CONTEXT_VERSION,
    JOB_TYPE,
    POLICY_VERSION,
    HomeRole,
    Lane,
    Level,
    MessageIntent,
    SafetyFlag,
    Strength,
    Surface,
    Topic,
)
from holdfast_rewrite.held_cli import held

if TYPE_CHECKING:
    from holdfast_rewrite.classify import Message
    from holdfast_rewrite.model import ClassifierResult, RewriteRequest

F = TypeVar("F", bound=Callable[..., Any])
# A placeholder where an id is required but irrelevant.
NOBODY = "00000000-0000-0000-0000-000000000000"
SURFACES = ("weekly_feedback", *(surface.value for surface in Surface))


def read_id(_ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return an option's value as a normalized id."""
    try:
        return read_uuid(value)
    except ValueError as exc:
        raise click.BadParameter(f"it {exc}", param=param) from None


def choice(words: Any) -> click.Choice[str]:
    return click.Choice([str(getattr(word, "value", word)) for word in words])


def choice_option(name: str, words: Any, default: str, says: str) -> Callable[[F], F]:
    return click.option(name, type=choice(words), default=default, show_default=True, help=says)


def locale_option(name: str, target: str, **more: Any) -> Callable[[F], F]:
    """A BCP 47 tag, of which only the language counts."""

    def read(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        from holdfast_rewrite.language import BadLocale, normalize

        try:
            return None if value is None else normalize(value)
        except BadLocale as exc:
            raise click.BadParameter(str(exc), param=param) from None

    return click.option(name, target, callback=read, **more)


@contextmanager
def refused() -> Iterator[None]:
    """Convert validation errors to usage errors."""
    from holdfast_rewrite.model import BadRewrite

    try:
        yield
    except BadRewrite as exc:
        raise click.UsageError(str(exc)) from None


@click.group()
def rewrite() -> None:
    """Rewrite complaints and inspect the results.

    The commands print JSON.
    """


rewrite.add_command(held)


# -- with a database


@rewrite.command()
@click.option("--home", "home_id", required=True, help="Home (UUID) of sender and recipient.")
@click.option("--sender", "sender_user_id", required=True, help="Sender (UUID).")
@click.option("--recipient", "recipient_user_id", required=True, help="Recipient (UUID).")
@text_option("--text", "The message")
@click.option("--surface", default=SURFACES[0], show_default=True, help="Surface of the message.")
@click.option(
    "--week", "feedback_cycle_start", help="Monday of the week that the message counts for."
)
@click.option("--emotion", "emotion_context", help="Emotion that the sender selected.")
@click.pass_context
def submit(ctx: click.Context, /, text: str, **asked: Any) -> None:
    """Submit a message to be rewritten.

    The rewrite is completed later. Exits with 1 if the submission failed.
    """
    from holdfast_rewrite.rewrites import Rewrites
    from holdfast_rewrite.validation import Submission

    with app_of(ctx, required=False) as hf:
        answer = Rewrites.for_app(hf).submit(Submission(sender_message=text, **asked))
    print_json(asdict(answer))
    ctx.exit(1 if answer.status == "failed" else 0)


@rewrite.command()
@click.argument("rewrite_request_id")
@click.option("--home", "home_id", help="Home (UUID); needed with --sender and --recipient.")
@click.option("--sender", help="Show it as this sender sees it.")
@click.option("--recipient", help="Show it as this recipient sees it.")
@operator_options
@click.pass_context
def show(
    ctx: click.Context,
    rewrite_request_id: str,
    home_id: str | None,
    sender: str | None,
    recipient: str | None,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Show the status of a rewrite.

    Operators see no text. With --sender or --recipient it is shown as that person sees it.
    """
    from holdfast_rewrite.show import find_record, find_sent

    if sender and recipient:
        raise click.UsageError("Pass --sender or --recipient; they see different data.")
    if (sender or recipient) and not home_id:
        raise click.UsageError("--sender and --recipient need --home.")
    with app_of(ctx, required=False) as hf:
        if sender:
            ids = {"home_id": str(home_id), "user_id": sender}
            print_json(asdict(find_sent(hf.store, rewrite_request_id, **ids)))
        elif recipient:
            print_json(_received(hf, rewrite_request_id, str(home_id), recipient))
        else:
            watch = operator_of(hf, actor, role, org_id or home_id).context
            print_json(find_record(watch, rewrite_request_id))


def _received(hf: Holdfast, rewrite_request_id: str, home_id: str, user_id: str) -> dict[str, Any]:
    from holdfast_rewrite.failure import InvalidRewrite, RewriteNotFound
    from holdfast_rewrite.show import NEWEST, list_received

    try:
        asked = read_uuid(rewrite_request_id)
    except ValueError:
        raise InvalidRewrite({"rewrite_request_id": "must be a UUID"}) from None
    just_after = NEWEST if asked == NEWEST else str(UUID(int=UUID(asked).int + 1))
    found = list_received(hf.store, home_id=home_id, user_id=user_id, limit=1, before=just_after)
    for one in found:
        if one.rewrite_request_id == asked:
            return asdict(one)
    raise RewriteNotFound(asked)


whose_options = (
    click.option("--user", "user_id", help="Person (UUID)."),
    click.option("--home", "home_id", help="Home (UUID). Without --user: the whole home."),
)


def of_whom(command: F) -> F:
    for option in reversed(whose_options):
        command = option(command)
    return command


@rewrite.command()
@of_whom
@operator_options
@click.pass_context
def export(
    ctx: click.Context,
    user_id: str | None,
    home_id: str | None,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Export the stored data of a person or home.

    The output is one JSON document per line.
    """
    from holdfast_rewrite.export import export_data

    with app_of(ctx, required=False) as hf:
        watch = operator_of(hf, actor, role, org_id).context
        for document in export_data(watch, user_id=user_id, home_id=home_id):
            click.echo(json.dumps(document))


@rewrite.command()
@of_whom
@click.option("--reason", required=True, help="Reason recorded in the audit.")
@operator_options
@click.pass_context
def erase(
    ctx: click.Context,
    user_id: str | None,
    home_id: str | None,
    reason: str,
    actor: str,
    role: str,
    org_id: str | None,
) -> None:
    """Erase the texts and preferences of a person or home.

    This cannot be undone.
    """
    from holdfast_rewrite.erase import erase_data

    with app_of(ctx, required=False) as hf:
        watch = operator_of(hf, actor, role, org_id).context
        print_json(asdict(erase_data(watch, user_id=user_id, home_id=home_id, reason=reason)))


# -- without one


@rewrite.command()
@text_option("--text", "The message")
@choice_option("--surface", SURFACES, SURFACES[0], "Surface of the message.")
@click.pass_context
def classify(ctx: click.Context, text: str, surface: str) -> None:
    """Classify a message with the configured classifier."""
    from holdfast_rewrite.classify import Message
    from holdfast_rewrite.classify_local import LocalClassifier

    settings = settings_of(ctx)
    message = Message(NOBODY, text, NOBODY, Surface.read(surface))
    if settings.rewrite.classifier == "local":
        print_json(LocalClassifier().classify(message).document)
    else:
        print_json(_ask_model(settings, message).document)


def _ask_model(settings: Settings, message: Message) -> ClassifierResult:
    from holdfast_llm.batch.accounts import ConfiguredAccounts
    from holdfast_rewrite.classify import classify_safely
    from holdfast_rewrite.classify_llm import ModelClassifier
    from holdfast_rewrite.route import classifier_route

    route = classifier_route(settings)
    assert route is not None, "the settings name a model only with its route"
    classifier = ModelClassifier(ConfiguredAccounts(settings), route)
    patience = settings.rewrite.classifier_timeout_seconds
    result, error = classify_safely(classifier, message, timeout_seconds=patience)
    if error is not None:
        click.echo(f"The model has no answer ({error}); these are the safe defaults.", err=True)
    return result


@rewrite.command("context-pack")
@click.option("--topic", "topics", multiple=True, type=choice(Topic), help="Topic; repeatable.")
@choice_option("--sender-role", HomeRole, "housemate", "Role of the sender in the home.")
@choice_option("--recipient-role", HomeRole, "housemate", "Role of the recipient in the home.")
@locale_option("--language", "target_language", default="en", help="Language of the recipient.")
@click.option(
    "--answer", "answers", multiple=True, help="Preference, as PREFERENCE=VALUE; repeatable."
)
@click.option("--recipient", default=NOBODY, callback=read_id, help="Recipient (UUID).")
def context_pack(
    topics: tuple[str, ...],
    sender_role: str,
    recipient_role: str,
    target_language: str,
    answers: tuple[str, ...],
    recipient: str,
) -> None:
    """Print the recipient context that a model receives."""
    from holdfast_rewrite.context_pack import build_pack

    given = _answers(answers)
    with refused():
        pack = build_pack(
            recipient_user_id=recipient,
            target_language=target_language,
            sender_role=HomeRole(sender_role),
            recipient_role=HomeRole(recipient_role),
            topics=[Topic(topic) for topic in topics or (Topic.OTHER,)],
            answers=given,
        )
    print_json(pack.document)


def _answers(answers: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for answer in answers:
        name, equals, value = answer.partition("=")
        if not equals:
            raise click.BadParameter("write PREFERENCE=VALUE", param_hint="--answer")
        if name in given:
            raise click.BadParameter(f"{name} is passed twice", param_hint="--answer")
        given[name] = value
    return given


@rewrite.command()
@choice_option("--surface", SURFACES, SURFACES[0], "Surface of the message.")
@choice_option("--strength", Strength, "full_reframe", "Strength of the rewrite.")
@locale_option("--from", "source", default="en", help="Language of the message.")
@locale_option("--to", "target", default="en", help="Language of the recipient.")
@click.pass_context
def route(ctx: click.Context, surface: str, strength: str, source: str, target: str) -> None:
    """Print the route of a request. Exits with 1 without one."""
    from holdfast_rewrite.route import RouteRequest, Routes

    asked = RouteRequest(
        task=JOB_TYPE,
        surface=Surface.read(surface),
        rewrite_strength=Strength(strength),
        source_locale=source,
        target_locale=target,
        lane=Lane.between(source, target),
        policy_version=POLICY_VERSION,
    )
    print_json(Routes(settings_of(ctx)).decide(asked))


@rewrite.command()
@locale_option("--locale", "locale", required=True, help="Language of the text.")
@text_option("--text", "The text")
def lexicon(locale: str, text: str) -> None:
    """Print the codes that a lexicon finds in a text."""
    from holdfast_rewrite.lexicon import check_text

    print_json(check_text(locale, text))


@rewrite.command()
@text_option("--text", "The original message")
@text_option("--rewrite", "The rewrite")
@locale_option("--from", "source", default="en", help="Language of the message.")
@locale_option("--to", "target", default="en", help="Language of the recipient.")
@click.option("--output-language", help="Declared language of the rewrite.  [default: --to]")
@choice_option("--intent", MessageIntent, "request", "Intent of the message.")
@click.option("--topic", "topics", multiple=True, type=choice(Topic), help="Topic; repeatable.")
@choice_option("--strength", Strength, "full_reframe", "Strength of the rewrite.")
@choice_option("--sender-role", HomeRole, "housemate", "Role of the sender in the home.")
@choice_option("--recipient-role", HomeRole, "housemate", "Role of the recipient in the home.")
def evaluate(text: str, rewrite: str, output_language: str | None, **asked: Any) -> None:
    """Judge a rewrite against its original message."""
    from holdfast_rewrite import evaluate as judge
    from holdfast_rewrite.detect import local_detector

    with refused():
        request = _request(text, **asked)
    found = judge.evaluate(
        request,
        rewritten_text=rewrite,
        output_language=output_language or request.target_locale,
        detector=local_detector(),
    )
    print_json(
        {
            "verdict": found.verdict.value,
            "lexicon_version": found.lexicon_version,
            "eval_result": found.result.document,
        }
    )


def _request(
    text: str,
    *,
    source: str,
    target: str,
    intent: str,
    topics: tuple[str, ...],
    strength: str,
    sender_role: str,
    recipient_role: str,
) -> RewriteRequest:
    """Build a request between two placeholder people to validate a rewrite against."""
    from holdfast_rewrite.context_pack import build_pack
    from holdfast_rewrite.model import ClassifierResult, Confidences, RewriteRequest
    from holdfast_rewrite.policy import policy_of

    about = tuple(Topic(topic) for topic in topics or (Topic.OTHER,))
    sure = Confidences(Level.HIGH, Level.HIGH, Level.HIGH)
    result = ClassifierResult(
        CLASSIFIER_VERSION,
        source,
        about,
        MessageIntent(intent),
        Strength(strength),
        sure,
        (SafetyFlag.NONE,),
    )
    pack = build_pack(
        recipient_user_id=NOBODY,
        target_language=target,
        sender_role=HomeRole(sender_role),
        recipient_role=HomeRole(recipient_role),
        topics=about,
        answers={},
    )
    return RewriteRequest(
        rewrite_request_id=NOBODY,
        home_id=NOBODY,
        sender_user_id=NOBODY,
        recipient_user_id=NOBODY,
        recipient_snapshot_id=NOBODY,
        recipient_preference_snapshot_id=NOBODY,
        surface=Surface.OTHER,
        original_text=text,
        topics=about,
        intent=result.intent,
        rewrite_strength=result.rewrite_strength,
        source_locale=source,
        target_locale=target,
        lane=Lane.between(source, target),
        classifier_result=result,
        context_pack=pack,
        policy=policy_of(result, pack),
        classifier_version=CLASSIFIER_VERSION,
        context_pack_version=CONTEXT_VERSION,
        policy_version=POLICY_VERSION,
        created_at="1970-01-01T00:00:00.000000Z",
    )
