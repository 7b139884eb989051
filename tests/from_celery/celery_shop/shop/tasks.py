"""What the shop does in the background."""

from celery import shared_task

from shop.records import record


@shared_task(
    bind=True, autoretry_for=(ConnectionError,), retry_backoff=1, retry_jitter=False, max_retries=3
)
def send_mail(self, to, subject):
    if to.startswith("busy@") and self.request.retries == 0:
        raise ConnectionError("the mail server is busy")
    record("mails", f"{to}: {subject}")
    return to


@shared_task(soft_time_limit=30)
def thumbnail(picture, width):
    record("thumbnails", f"{picture} at {width}")
    return f"{picture}@{width}"


@shared_task
def contact_sheet(thumbnails, album):
    record("sheets", f"{album}: {', '.join(thumbnails)}")
    return len(thumbnails)


@shared_task(name="shop.render_invoice")
def render_invoice(order):
    return f"invoice-{order}.pdf"


@shared_task
def mail_invoice(pdf, to):
    record("invoices", f"{pdf} to {to}")
    return f"{pdf} sent"


@shared_task(bind=True, max_retries=1)
def charge(self, order, card):
    try:
        if card == "stolen":
            raise ValueError(f"order {order} was declined")
    except ValueError as error:
        raise self.retry(exc=error, countdown=0) from error
    record("charges", f"{order} by {card}")
    return order


@shared_task(ignore_result=True)
def nightly_report():
    record("reports", "nightly")


@shared_task(ignore_result=True)
def count_stock(warehouse):
    record("stock", warehouse)
