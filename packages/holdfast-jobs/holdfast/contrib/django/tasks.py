"""A backend of Django's tasks: ``django.tasks`` of Django 6, or the package django-tasks.

TASKS = {"default": {"BACKEND": "holdfast.contrib.django.tasks.HoldfastBackend"}}
"""

from __future__ import annotations

from typing import Any

from django.db import close_old_connections, connection, transaction
from django.utils.module_loading import import_string

from holdfast.app import Holdfast
from holdfast.contrib.django.app import application
from holdfast.engine.context import Context
from holdfast.engine.job import Job, Priority, State
from holdfast.errors import ConfigError, InvalidArgument, InvalidJob, JobNotFound

try:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME, TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask as InvalidTaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks import DEFAULT_TASK_QUEUE_NAME, TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

JOB_TYPE = "django.task"
_STATUS = {
    State.QUEUED: TaskResultStatus.READY,
    State.PROCESSING: TaskResultStatus.RUNNING,
    State.BATCH_SUBMITTED: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELED: TaskResultStatus.FAILED,
}


class HoldfastBackend(BaseTaskBackend):  # type: ignore[misc]
    """Stores tasks as jobs. In an atomic block the job is part of the transaction.

    ``OPTIONS`` are ``max_attempts`` and ``org_id``. A queue ``mail`` of Django is the queue
    ``q:mail`` of Holdfast. Exceptions are retried by the rules of Holdfast.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.holdfast = declare(application(), self.queues)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a task. Raises InvalidTask if its arguments cannot be stored."""
        self.validate_task(task)
        payload = {
            "path": task.module_path,
            "args": list(args),
            "kwargs": dict(kwargs),
            "backend": self.alias,
        }
        in_transaction = connection.in_atomic_block
        queue = queue_of(task.queue_name)
        try:
            handle = self.holdfast.enqueue(
                JOB_TYPE,
                payload,
                queue=queue,
                priority=priority_of(task.priority),
                at=task.run_after,
                conn=connection if in_transaction else None,
                org_id=self.options.get("org_id"),
                max_attempts=self.options.get("max_attempts"),
            )
        except InvalidJob as exc:
            raise InvalidTaskError(str(exc)) from exc
        if in_transaction:
            transaction.on_commit(lambda: self.holdfast.wake([queue]))
        result = _new_result(task, handle.id, payload, self.alias)
        object.__setattr__(result, "enqueued_at", handle.created_at)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result with this id. Raises TaskResultDoesNotExist."""
        try:
            job = self.holdfast.get(result_id, org_id=self.options.get("org_id"))
        except (JobNotFound, InvalidArgument) as exc:
            raise TaskResultDoesNotExist(result_id) from exc
        if job.job_type != JOB_TYPE:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job, self.alias)


def declare(hf: Holdfast, queues: Any = ()) -> Holdfast:
    """Declare the job type of Django's tasks, and the queues of a backend."""
    for name in queues:
        if (queue := queue_of(name)) not in hf.known_queues:
            hf.queue(queue)
    if JOB_TYPE not in hf.registry:
        hf.job(JOB_TYPE)(run_task)
    return hf


def queue_of(name: str) -> str:
    """The queue of Holdfast for a queue of Django. Raises ConfigError if it has no such name."""
    queue = f"q:{name.lower()}"
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"Queue {name!r} must have letters, digits, dashes and underscores only.")
    return queue


def priority_of(number: int) -> Priority:
    """The priority of Holdfast for one of Django, where a higher number is more important."""
    if number == 0:
        return Priority.NORMAL
    if number < 0:
        return Priority.LOW
    return Priority.CRITICAL if number > 50 else Priority.HIGH


def run_task(job: Context, payload: dict[str, Any]) -> Any:
    """Run a task in a worker."""
    close_old_connections()
    try:
        task = import_string(payload["path"])
        if not isinstance(task, Task):
            raise ConfigError(f"{payload['path']} is not a task.")
        result = _new_result(task, job.id, payload, payload["backend"])
        result.worker_ids.extend([job.job.claimed_by] * job.attempt)
        object.__setattr__(result, "status", TaskResultStatus.RUNNING)
        task_started.send(HoldfastBackend, task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = task.call(*context, *payload["args"], **payload["kwargs"])
        except BaseException:
            object.__setattr__(result, "status", TaskResultStatus.FAILED)
            task_finished.send(HoldfastBackend, task_result=result)
            raise
        object.__setattr__(result, "status", TaskResultStatus.SUCCESSFUL)
        task_finished.send(HoldfastBackend, task_result=result)
        return value
    finally:
        close_old_connections()


def result_of(job: Job, alias: str) -> Any:
    """The task result of a job."""
    task = import_string(job.payload["path"])
    result = _new_result(task, job.id, job.payload, alias)
    running = job.state in (State.PROCESSING, State.COMPLETED)
    worker = str(job.record.get("claimed_by") or "")
    result.worker_ids.extend([worker] * (job.attempt_count + running))
    if job.state in (State.FAILED, State.CANCELED):
        path = "holdfast.JobFailed" if job.state is State.FAILED else "holdfast.ResultCanceled"
        # The message of an exception may be private; what is stored of it is safe.
        text = job.last_error or "canceled"
        result.errors.append(TaskError(exception_class_path=path, traceback=text))
    started = job.record.get("claimed_at")
    fields = {
        "status": _STATUS[job.state],
        "enqueued_at": job.created_at,
        "started_at": started,
        "last_attempted_at": started or job.record.get("last_error_at"),
        "finished_at": job.record.get("finished_at"),
        "_return_value": job.result,
    }
    for name, value in fields.items():
        object.__setattr__(result, name, value)
    return result


def _new_result(task: Any, result_id: str, payload: Any, alias: str) -> Any:
    return TaskResult(
        task=task,
        id=result_id,
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=payload["args"],
        kwargs=payload["kwargs"],
        backend=alias,
        errors=[],
        worker_ids=[],
    )


__all__ = ["DEFAULT_TASK_QUEUE_NAME", "JOB_TYPE", "HoldfastBackend", "declare"]
