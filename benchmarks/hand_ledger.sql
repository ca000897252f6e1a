-- The ledger of a fleet whose allocations all name their GPU, as somebody would write it by hand for that case.
WITH gpu AS (
  SELECT device_id, node, accelerator, pool, coalesce(share, 1.0) AS share,
    greatest(coalesce(from_utc, :start), :start) AS s, least(coalesce(to_utc, :end), :end) AS e
  FROM devices
), priced AS (
  SELECT g.device_id, greatest(g.s, coalesce(p.from_utc, :start)) AS s, least(g.e, coalesce(p.to_utc, :end)) AS e, basis, usd_per_gpu_hour AS usd
  FROM gpu g JOIN prices p ON (p.accelerator IS NULL OR p.accelerator = g.accelerator) AND (p.pool IS NULL OR p.pool = g.pool)
    AND (p.device_id IS NULL OR p.device_id = g.device_id)
    AND coalesce(p.from_utc, :start) < g.e AND coalesce(p.to_utc, :end) > g.s
), broken AS (
  SELECT g.device_id, greatest(o.from_utc, g.s) AS s, least(coalesce(o.to_utc, :end), g.e) AS e
  FROM outages o JOIN gpu g ON (o.device_id = g.device_id OR (o.device_id IS NULL AND o.node = g.node))
  WHERE o.from_utc < g.e AND coalesce(o.to_utc, :end) > g.s
), held AS (
  SELECT a.job_id, coalesce(a.attempt, 0.0) AS attempt, a.user, a.team, a.project, a.experiment_id, a.purpose, a.device_id,
    coalesce(a.gpus, 1.0) * coalesce(a.share, 1.0) * g.share AS gpus,
    greatest(a.from_utc, g.s) AS s, least(coalesce(a.to_utc, :end), g.e) AS e
  FROM allocations a JOIN gpu g USING (device_id) WHERE a.from_utc < g.e AND coalesce(a.to_utc, :end) > g.s
), cuts AS (
  SELECT device_id, s AS cut FROM gpu UNION SELECT device_id, e FROM gpu
  UNION SELECT device_id, s FROM priced UNION SELECT device_id, e FROM priced
  UNION SELECT device_id, s FROM broken UNION SELECT device_id, e FROM broken
  UNION SELECT device_id, s FROM held UNION SELECT device_id, e FROM held
), pieces AS (
  SELECT device_id, s, e, unnest(range(s // 86400000, (e - 1) // 86400000 + 1)) AS day
  FROM (SELECT device_id, cut AS s, lead(cut) OVER (PARTITION BY device_id ORDER BY cut) AS e FROM cuts) WHERE e IS NOT NULL
), held_days AS (SELECT *, unnest(range(s // 86400000, (e - 1) // 86400000 + 1)) AS day FROM held
), asked AS (
  SELECT h.* EXCLUDE (s, e, day), p.s, p.e, p.day, sum(gpus) OVER (PARTITION BY p.device_id, p.s, p.day) AS demand
  FROM pieces p JOIN held_days h ON h.device_id = p.device_id AND h.day = p.day AND h.s <= p.s AND h.e >= p.e
), demand AS (SELECT device_id, s, day, any_value(demand) AS demand FROM asked GROUP BY ALL
), there AS (
  SELECT p.device_id, p.s, p.e, p.day, g.node, g.accelerator, g.pool, g.share, coalesce(d.demand, 0.0) AS demand, b.device_id IS NOT NULL AS down
  FROM pieces p JOIN gpu g ON g.device_id = p.device_id AND g.s <= p.s AND g.e >= p.e
  LEFT JOIN demand d ON d.device_id = p.device_id AND d.s = p.s AND d.day = p.day
  LEFT JOIN broken b ON b.device_id = p.device_id AND b.s <= p.s AND b.e >= p.e
), usd AS (
  SELECT p.device_id, p.s, p.day, max(usd) FILTER (basis = 'contracted') AS contracted, max(usd) FILTER (basis = 'list') AS list
  FROM pieces p JOIN priced r ON r.device_id = p.device_id AND r.s <= p.s AND r.e >= p.e GROUP BY ALL
), rows AS (
  SELECT job_id, attempt, user, team, project, experiment_id, purpose, t.*, gpus * least(1.0, t.share / t.demand) AS gpus, true AS held
  FROM asked a JOIN there t ON t.device_id = a.device_id AND t.s = a.s AND t.day = a.day
  UNION ALL
  SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, *, share - least(demand, share), false FROM there WHERE share - least(demand, share) > 1e-9
), hours AS (
  SELECT *, greatest(s, day * 86400000, hour) AS f, least(e, (day + 1) * 86400000, hour + 3600000) AS t FROM (
    SELECT *, unnest(range(greatest(s, day * 86400000) // 3600000, (least(e, (day + 1) * 86400000) - 1) // 3600000 + 1)) * 3600000 AS hour FROM rows)
), spans AS MATERIALIZED (
  SELECT *, row_number() OVER () AS span FROM (SELECT DISTINCT device_id, hour, f, t FROM hours)
), bins AS (
  SELECT span, measured_mask, act < 0.05 AS idle, least((act * 20)::INT, 19) AS bin, sum(ms) AS ms,
    sum(busy_share * ms) AS busy, sum(engine_active_share * ms) AS engine, sum(sm_active_share * ms) AS sm,
    sum(tensor_active_share * ms) AS tensor, sum(dram_active_share * ms) AS dram, sum(mem_used_bytes * ms) AS used,
    sum(mem_total_bytes * ms) AS total, sum(power_w * ms) AS power, max(mem_used_bytes / mem_total_bytes) AS peak,
    sum(CASE WHEN throttle_mask & 252 > 0 THEN ms ELSE 0 END) AS throttled
  FROM (SELECT p.span, c.*, coalesce(sm_active_share, engine_active_share, busy_share) AS act,
          (least(to_utc, t) - greatest(from_utc, f))::DOUBLE AS ms
        FROM samples c JOIN spans p ON c.device_id = p.device_id AND c.hour_utc = p.hour AND from_utc < t AND to_utc > f)
  GROUP BY ALL
), folded AS (
  SELECT span, CASE WHEN idle IS NULL THEN 'unobserved' WHEN idle THEN 'idle' ELSE 'busy' END AS state, sum(ms) / 1000 AS seconds,
    sum(CASE WHEN measured_mask & 4 > 0 THEN sm ELSE 0 END) / 1000 AS effective_sm_active_s,
    sum(CASE WHEN measured_mask & 6 = 2 THEN engine ELSE 0 END) / 1000 AS effective_engine_active_s,
    sum(CASE WHEN measured_mask & 7 = 1 THEN busy ELSE 0 END) / 1000 AS effective_gpu_util_s,
    sum(CASE WHEN measured_mask & 4 > 0 THEN ms ELSE 0 END) / 1000 AS observed_sm_active_s,
    sum(CASE WHEN measured_mask & 6 = 2 THEN ms ELSE 0 END) / 1000 AS observed_engine_active_s,
    sum(CASE WHEN measured_mask & 7 = 1 THEN ms ELSE 0 END) / 1000 AS observed_gpu_util_s,
    sum(busy) / 1000 AS busy_s, sum(engine) / 1000 AS engine_active_s, sum(sm) / 1000 AS sm_active_s,
    sum(tensor) / 1000 AS tensor_active_s, sum(dram) / 1000 AS dram_active_s,
    sum(CASE WHEN measured_mask & 1 > 0 THEN ms ELSE 0 END) / 1000 AS busy_measured_s,
    sum(CASE WHEN measured_mask & 2 > 0 THEN ms ELSE 0 END) / 1000 AS engine_active_measured_s,
    sum(CASE WHEN measured_mask & 4 > 0 THEN ms ELSE 0 END) / 1000 AS sm_active_measured_s,
    sum(CASE WHEN measured_mask & 8 > 0 THEN ms ELSE 0 END) / 1000 AS tensor_active_measured_s,
    sum(CASE WHEN measured_mask & 16 > 0 THEN ms ELSE 0 END) / 1000 AS dram_active_measured_s,
    sum(CASE WHEN measured_mask & 96 = 96 THEN used ELSE 0 END) / 1000 AS mem_used_byte_s,
    sum(CASE WHEN measured_mask & 96 = 96 THEN total ELSE 0 END) / 1000 AS mem_total_byte_s,
    sum(CASE WHEN measured_mask & 96 = 96 THEN ms ELSE 0 END) / 1000 AS mem_measured_s,
    sum(power) / 1000 AS energy_j, sum(CASE WHEN measured_mask & 128 > 0 THEN ms ELSE 0 END) / 1000 AS energy_measured_s,
    sum(throttled) / 1000 AS throttled_s, sum(CASE WHEN measured_mask & 8192 > 0 THEN ms ELSE 0 END) / 1000 AS throttle_measured_s,
    max(peak) AS mem_peak_share, list(bin) AS bins, list(ms / 1000) AS bin_s
  FROM bins GROUP BY ALL
), numbered AS (SELECT h.*, p.span FROM hours h JOIN spans p USING (device_id, hour, f, t)
), known AS (SELECT span, sum(seconds) AS known_s FROM folded WHERE state <> 'unobserved' GROUP BY span
), book AS (
  SELECT n.*, CASE WHEN held THEN state WHEN down THEN 'down' ELSE 'unallocated' END AS said,
    CASE WHEN held AND state <> 'unobserved' THEN gpus * seconds ELSE 0 END AS gpu_s,
    CASE WHEN held AND state <> 'unobserved' THEN gpus ELSE 0 END AS counted, gpus AS real, o.* EXCLUDE (span, state, seconds)
  FROM numbered n JOIN folded o USING (span)
), rest AS (
  SELECT n.*, CASE WHEN held THEN 'unobserved' WHEN down THEN 'down' ELSE 'unallocated' END AS said,
    gpus * ((t - f) / 1000 - CASE WHEN held THEN coalesce(known_s, 0) ELSE 0 END) AS gpu_s
  FROM numbered n LEFT JOIN known USING (span)
), ledger AS (SELECT * FROM book UNION ALL BY NAME SELECT * FROM rest WHERE gpu_s > 0)
SELECT l.hour AS hour_utc, l.f AS from_utc, l.t AS to_utc, l.said AS state, l.device_id, node, accelerator, pool, job_id, attempt, user,
  team, project, experiment_id, purpose, gpu_s, counted * effective_sm_active_s AS effective_sm_active_s,
  counted * effective_engine_active_s AS effective_engine_active_s, counted * effective_gpu_util_s AS effective_gpu_util_s,
  counted * observed_sm_active_s AS observed_sm_active_s, counted * observed_engine_active_s AS observed_engine_active_s,
  counted * observed_gpu_util_s AS observed_gpu_util_s, real * busy_s AS busy_s, real * engine_active_s AS engine_active_s,
  real * sm_active_s AS sm_active_s, real * tensor_active_s AS tensor_active_s, real * dram_active_s AS dram_active_s,
  real * busy_measured_s AS busy_measured_s, real * engine_active_measured_s AS engine_active_measured_s,
  real * sm_active_measured_s AS sm_active_measured_s, real * tensor_active_measured_s AS tensor_active_measured_s,
  real * dram_active_measured_s AS dram_active_measured_s, real * mem_used_byte_s AS mem_used_byte_s,
  real * mem_total_byte_s AS mem_total_byte_s, real * mem_measured_s AS mem_measured_s, real * energy_j AS energy_j,
  real * energy_measured_s AS energy_measured_s, real * throttled_s AS throttled_s, real * throttle_measured_s AS throttle_measured_s,
  mem_peak_share, bins, bin_s, counted,
  gpu_s * u.contracted / 3600 AS usd_contracted, gpu_s * u.list / 3600 AS usd_list
FROM ledger l LEFT JOIN usd u ON u.device_id = l.device_id AND u.s = l.s AND u.day = l.day
ORDER BY hour_utc, device_id
