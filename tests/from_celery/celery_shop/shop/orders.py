"""Places an order: run as a command, it prints what came of it."""

import sys

from celery import chain, chord

from shop.app import app
from shop.tasks import charge, contact_sheet, mail_invoice, render_invoice, send_mail, thumbnail

assert app.main == "shop"


def place_order(order, to, pictures):
    send_mail.apply_async((to, f"order {order}"), countdown=0.1, task_id=f"confirm-{order}")
    invoice = chain(render_invoice.s(order), mail_invoice.s(to))()
    sheet = chord(
        [thumbnail.s(each, 120) for each in pictures], contact_sheet.s(f"order {order}")
    )()
    return invoice.get(timeout=120), sheet.get(timeout=120)


def decline(order):
    charged = charge.delay(order, "stolen")
    charged.get(timeout=120, propagate=False)
    return charged.status


if __name__ == "__main__":
    number = int(sys.argv[1])
    print(*place_order(number, f"busy@{number}.example", ["hat", "coat", "shoe"]), decline(number))
