-- Values with bytes in them. Such a value begins with a zero byte and the length of its text in four bytes. The text follows, then
-- the bytes. The views show the text, in which a string of U+0000, `r` and a number stands for so many bytes.
CREATE OR REPLACE FUNCTION as_json(bytes bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF length(bytes) > 5 AND get_byte(bytes, 0) = 0 THEN
    bytes := substring(bytes FROM 6 FOR
      (get_byte(bytes, 1) << 24) + (get_byte(bytes, 2) << 16) + (get_byte(bytes, 3) << 8) + get_byte(bytes, 4));
  END IF;
  RETURN convert_from(bytes, 'UTF8')::json;
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character OR invalid_text_representation
  OR substring_error OR numeric_value_out_of_range THEN
  RETURN NULL;
END
$$;
