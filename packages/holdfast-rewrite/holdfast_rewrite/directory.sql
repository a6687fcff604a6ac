-- Statements of the built-in directory: homes, members and preferences.

-- insert_home :affected — an existing home does not change
INSERT INTO holdfast.home (org_id, created_at)
VALUES (:org_id, {now})
ON CONFLICT (org_id) DO NOTHING;

-- put_member :affected — inserts, reactivates or updates a member; only of an existing home
INSERT INTO holdfast.home_member AS member
    (org_id, user_id, role, locale, joined_at, updated_at)
SELECT home.org_id, :user_id, :role, :locale, {now}, {now}
FROM holdfast.home AS home
WHERE home.org_id = :org_id
ON CONFLICT (org_id, user_id) DO UPDATE
SET role = excluded.role, locale = excluded.locale, updated_at = excluded.updated_at,
    joined_at = CASE WHEN member.left_at IS NULL THEN member.joined_at ELSE excluded.joined_at END,
    left_at = NULL;

-- change_locale :affected — existing requests keep their language
UPDATE holdfast.home_member SET locale = :locale, updated_at = {now}
WHERE org_id = :org_id AND user_id = :user_id AND left_at IS NULL;

-- leave :affected — the member stays on record but neither sends nor receives
-- Members who left do not change: the commit may have succeeded without its answer.
UPDATE holdfast.home_member
SET left_at = coalesce(left_at, {now}),
    updated_at = CASE WHEN left_at IS NULL THEN {now} ELSE updated_at END
WHERE org_id = :org_id AND user_id = :user_id;

-- put_answer :affected — a member's preference; the last answer counts
INSERT INTO holdfast.preference_answer (org_id, user_id, preference_id, value_key, answered_at)
SELECT member.org_id, member.user_id, :preference_id, :value_key, {now}
FROM holdfast.home_member AS member
WHERE member.org_id = :org_id AND member.user_id = :user_id AND member.left_at IS NULL
ON CONFLICT (org_id, user_id, preference_id) DO UPDATE
SET value_key = excluded.value_key, answered_at = excluded.answered_at;

-- insert_block :affected — blocks sending and receiving in this home
INSERT INTO holdfast.rewrite_block (org_id, user_id, created_at)
SELECT home.org_id, :user_id, {now}
FROM holdfast.home AS home
WHERE home.org_id = :org_id
ON CONFLICT (org_id, user_id) DO NOTHING;

-- delete_block :affected — allows sending and receiving again
DELETE FROM holdfast.rewrite_block WHERE org_id = :org_id AND user_id = :user_id;

-- has_home :maybe — whether the home exists
SELECT org_id FROM holdfast.home WHERE org_id = :org_id;

-- look :many — both people of each submission in one read, each in its own home
SELECT asked.place, sender.role AS sender_role, sender.locale AS sender_locale,
       sender.left_at AS sender_left_at, recipient.role AS recipient_role,
       recipient.locale AS recipient_locale, recipient.left_at AS recipient_left_at,
       EXISTS (
           SELECT 1 FROM holdfast.rewrite_block AS block
           WHERE block.org_id = asked.org_id
             AND block.user_id IN (asked.sender_user_id, asked.recipient_user_id)) AS is_blocked
FROM {rows asked: place integer, org_id uuid, sender_user_id uuid, recipient_user_id uuid}
LEFT JOIN holdfast.home_member AS sender
  ON sender.org_id = asked.org_id AND sender.user_id = asked.sender_user_id
LEFT JOIN holdfast.home_member AS recipient
  ON recipient.org_id = asked.org_id AND recipient.user_id = asked.recipient_user_id
ORDER BY asked.place;

-- list_answers :many — the recipients' answers, each in the home of its submission
SELECT asked.place, answer.preference_id, answer.value_key
FROM {rows asked: place integer, org_id uuid, recipient_user_id uuid}
JOIN holdfast.preference_answer AS answer
  ON answer.org_id = asked.org_id AND answer.user_id = asked.recipient_user_id
ORDER BY asked.place, answer.preference_id;
