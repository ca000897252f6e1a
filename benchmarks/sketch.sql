-- A ledger of the barest kind, in one pass: seconds, idle seconds, five weighted sums, a maximum and a histogram for each GPU,
-- job and hour. No unallocated or down time, no prices, no shares, no overlaps; a sample belongs to the job that held its end.
SELECT device_id, job_id, hour_utc, sum(s) AS s, sum(idle_s) AS idle_s, sum(busy) AS busy, sum(sm) AS sm, sum(tensor) AS tensor,
  sum(dram) AS dram, sum(power) AS power, max(peak) AS peak, list(bin) AS bins, list(s) AS bin_s
FROM (
  SELECT c.device_id, job_id, hour_utc, least(floor(sm_active_share * 20)::INT, 19) AS bin, sum(length_ms) AS s,
    sum(CASE WHEN sm_active_share < 0.05 THEN length_ms ELSE 0 END) AS idle_s, sum(busy_share * length_ms) AS busy,
    sum(sm_active_share * length_ms) AS sm, sum(tensor_active_share * length_ms) AS tensor,
    sum(dram_active_share * length_ms) AS dram, sum(power_w * length_ms) AS power, max(sm_active_share) AS peak
  FROM (SELECT *, to_utc - from_utc AS length_ms FROM samples) c JOIN (
    SELECT job_id, device_id, from_utc AS s, coalesce(to_utc, :end) AS e,
      unnest(range(from_utc // 3600000, (coalesce(to_utc, :end) - 1) // 3600000 + 1)) * 3600000 AS hour
    FROM allocations
  ) a ON c.device_id = a.device_id AND c.hour_utc = a.hour AND c.to_utc > a.s AND c.to_utc <= a.e
  GROUP BY ALL
) GROUP BY ALL
