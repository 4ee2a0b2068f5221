SELECT sweep_expired($1::integer) AS swept
